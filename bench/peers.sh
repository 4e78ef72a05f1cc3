#!/usr/bin/env bash
# Installs and runs the brokers that Stompbox is measured against, each with STOMP on a loopback port.
#   peers.sh install artemis|classic|rabbitmq   into $PEERS (default: ~/.cache/stompbox-peers); nothing where it is there already
#   peers.sh start   artemis|classic|rabbitmq   prints "NAME PID PORT MILLISECONDS" once STOMP answers, with an empty data folder;
#                                               the milliseconds go from the launch to the answer
#   peers.sh stop    artemis|classic|rabbitmq   ends what start began
#   peers.sh start|stop rabbitmqs               three nodes of RabbitMQ in one cluster; the PID and the port are the first one's
# Ports: artemis 62613, classic 63613, rabbitmq 64613, rabbitmqs 60613, 60614 and 60615. User guest, passcode guest, virtual host / (rabbitmq).
# Settings are each distribution's own defaults (persistence and fsync on), plus a heap of 3 GiB for the two Java brokers.
# Artemis and Classic need Java and Maven, RabbitMQ a Debian system and root.
set -euo pipefail
PEERS=${PEERS:-$HOME/.cache/stompbox-peers}
ARTEMIS=2.44.0
CLASSIC=5.18.3
mkdir -p "$PEERS"
PEERS=$(cd "$PEERS" && pwd)

fail() { echo "$*" >&2; exit 1; }

unpack() { # folder artifact version: fetches the distribution org.apache.activemq:artifact:version and unpacks it as folder
  [ -d "$PEERS/$1" ] && return
  command -v java >/dev/null || fail "$2 needs Java 17 or later, and there is no \`java\`"
  command -v mvn >/dev/null || fail "$2 is installed by Maven, and there is no \`mvn\`"
  mvn -q -B dependency:copy -Dartifact="org.apache.activemq:$2:$3:tar.gz:bin" -DoutputDirectory="$PEERS" >&2
  tar xzf "$PEERS/$2-$3-bin.tar.gz" -C "$PEERS"
  rm "$PEERS/$2-$3-bin.tar.gz"
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# Launches the rest of the arguments in the background and says how long its port took to answer.
launch() { # name port command...
  local name=$1 port=$2 began end pid
  shift 2
  began=$(milliseconds)
  end=$((began + 90000))
  nohup "$@" >"$PEERS/$name.log" 2>&1 </dev/null &
  pid=$!
  echo $pid >"$PEERS/$name.pid"
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 $pid 2>/dev/null || fail "$name ended before its port $port answered; its log is $PEERS/$name.log"
    [ "$(milliseconds)" -lt $end ] || fail "$name does not answer on port $port after 90 s; its log is $PEERS/$name.log"
    sleep 0.02
  done
  echo "$name $pid $port $(($(milliseconds) - began))"
}

descendants() {
  local child
  for child in $(pgrep -P "$1"); do descendants "$child"; done
  echo "$1"
}

case "${1:-} ${2:-}" in
"install artemis") unpack "apache-artemis-$ARTEMIS" apache-artemis $ARTEMIS ;;
"install classic") unpack "apache-activemq-$CLASSIC" apache-activemq $CLASSIC ;;
"install rabbitmq") [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || apt-get install -y -qq rabbitmq-server >/dev/null ;;

"start artemis")
  rm -rf "$PEERS/artemis"
  "$PEERS/apache-artemis-$ARTEMIS/bin/artemis" create "$PEERS/artemis" --user guest --password guest --allow-anonymous \
    --host 127.0.0.1 --port-offset 1000 --no-amqp-acceptor --no-hornetq-acceptor --no-mqtt-acceptor --no-web --silent >/dev/null
  sed -i -E 's/-Xmx[0-9]+[MG]/-Xmx3G/' "$PEERS/artemis/etc/artemis.profile"
  sed -i -E 's|(protocols=STOMP;useEpoll=true)|\1;anycastPrefix=/queue/;multicastPrefix=/topic/|' "$PEERS/artemis/etc/broker.xml"
  launch artemis 62613 "$PEERS/artemis/bin/artemis" run
  ;;
"start classic")
  home="$PEERS/apache-activemq-$CLASSIC" base="$PEERS/classic"
  rm -rf "$base"
  mkdir -p "$base/data" "$base/tmp"
  cp -r "$home/conf" "$base/conf"
  python3 - "$base/conf/activemq.xml" <<'PY'
import re, sys

path = sys.argv[1]
text = open(path).read()
connectors = (
    '<transportConnectors><transportConnector name="stomp" uri="stomp+nio://127.0.0.1:63613?maximumConnections=5000"/>'
    '<transportConnector name="ws" uri="ws://127.0.0.1:63614"/></transportConnectors>'
)
text = re.sub(r"<transportConnectors>.*</transportConnectors>", connectors, text, flags=re.S)
open(path, "w").write(text.replace('<import resource="jetty.xml"/>', ""))
PY
  export ACTIVEMQ_BASE="$base" ACTIVEMQ_CONF="$base/conf" ACTIVEMQ_DATA="$base/data" ACTIVEMQ_TMP="$base/tmp"
  export ACTIVEMQ_OPTS_MEMORY="-Xms512M -Xmx3G"
  launch classic 63613 "$home/bin/activemq" console
  ;;
"start rabbitmq")
  base="$PEERS/rabbitmq"
  rm -rf "$base"
  mkdir -p "$base"
  echo '[rabbitmq_stomp].' >"$base/plugins"
  printf 'listeners.tcp.1 = 127.0.0.1:64672\nstomp.listeners.tcp.1 = 127.0.0.1:64613\n' >"$base/rabbitmq.conf"
  export RABBITMQ_NODENAME="peer@localhost" RABBITMQ_MNESIA_BASE="$base/db" RABBITMQ_LOG_BASE="$base/log" RABBITMQ_DIST_PORT=64800
  export RABBITMQ_ENABLED_PLUGINS_FILE="$base/plugins" RABBITMQ_CONFIG_FILE="$base/rabbitmq.conf" HOME="$base" ERL_EPMD_ADDRESS=127.0.0.1
  launch rabbitmq 64613 /usr/lib/rabbitmq/bin/rabbitmq-server
  ;;

"start rabbitmqs")
  began=$(milliseconds)
  rm -rf "$PEERS/rabbitmqs"
  for at in 1 2 3; do "$0" start "rabbitmqs-$at" >/dev/null; done
  HOME="$PEERS/rabbitmqs/1" timeout 60 /usr/lib/rabbitmq/bin/rabbitmqctl -q -n peer1@localhost await_online_nodes 3 >/dev/null
  echo "rabbitmqs $(cat "$PEERS/rabbitmqs-1.pid") 60613 $(($(milliseconds) - began))"
  ;;
"start rabbitmqs-"[123]) # one of the three, with the data that it has
  at=${2#rabbitmqs-} home="$PEERS/rabbitmqs/${2#rabbitmqs-}"
  mkdir -p "$home"
  [ "$at" = 1 ] || cp "$PEERS/rabbitmqs/1/.erlang.cookie" "$home/" # the first node has made it
  echo '[rabbitmq_stomp].' >"$home/plugins"
  {
    printf 'listeners.tcp.1 = 127.0.0.1:%s\nstomp.listeners.tcp.1 = 127.0.0.1:%s\n' $((60671 + at)) $((60612 + at))
    echo 'cluster_formation.peer_discovery_backend = classic_config'
    printf 'cluster_formation.classic_config.nodes.%s = peer%s@localhost\n' 1 1 2 2 3 3
  } >"$home/rabbitmq.conf"
  export RABBITMQ_NODENAME="peer$at@localhost" RABBITMQ_MNESIA_BASE="$home/db" RABBITMQ_LOG_BASE="$home/log" RABBITMQ_DIST_PORT=$((60810 + at))
  export RABBITMQ_ENABLED_PLUGINS_FILE="$home/plugins" RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" HOME="$home" ERL_EPMD_ADDRESS=127.0.0.1
  launch "$2" $((60612 + at)) /usr/lib/rabbitmq/bin/rabbitmq-server
  ;;
"stop rabbitmqs")
  for at in 3 2 1; do "$0" stop "rabbitmqs-$at"; done
  ;;
"stop artemis" | "stop classic" | "stop rabbitmq" | "stop rabbitmqs-"[123])
  pid=$(cat "$PEERS/$2.pid" 2>/dev/null) || exit 0
  for p in $(descendants "$pid"); do kill "$p" 2>/dev/null || true; done
  for _ in $(seq 50); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.2
  done
  kill -9 "$pid" 2>/dev/null || true
  rm -f "$PEERS/$2.pid"
  ;;
*)
  sed -n 2,9p "$0"
  exit 2
  ;;
esac
