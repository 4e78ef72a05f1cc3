# Plays the gem stomp against a broker over TCP: ruby player.rb HOST PORT VERSION QUEUE
# Prints one line of JSON with what it saw; test_debian.py says what is right.
require "json"
require "stomp"
require "timeout"

HOST, PORT, VERSION, QUEUE = ARGV
WITHIN = 10 # seconds for anything that is on its way

def connect
  headers = VERSION == "1.0" ? {} : { "accept-version" => VERSION, "host" => HOST }
  hosts = [{ login: "guest", passcode: "guest", host: HOST, port: Integer(PORT) }]
  Stomp::Connection.new(hosts: hosts, reliable: false, connect_headers: headers)
end

def take(connection, command)
  frame = Timeout.timeout(WITHIN) { connection.receive }
  raise "#{frame.command} where #{command} was expected: #{frame.headers}" unless frame.command == command
  frame
end

def publish(connection, body, headers = {})
  connection.publish(QUEUE, body, headers.merge("receipt" => "sent"))
  take(connection, "RECEIPT")
end

def ack(connection, message)
  case VERSION
  when "1.0" then connection.ack(message.headers["message-id"])
  when "1.1" then connection.ack(message.headers["message-id"], subscription: "1")
  else connection.ack(message.headers["ack"])
  end
end

def leave(connection)
  connection.disconnect(receipt: "bye")
  raise "no receipt" unless connection.disconnect_receipt.headers["receipt-id"] == "bye"
end

first = connect
["one", "two: grün", "three\0"].each { |body| publish(first, body, "colour" => "red") }
first.subscribe(QUEUE, id: "1", ack: "client-individual")
messages = Array.new(3) { take(first, "MESSAGE") }
version = first.protocol
ack(first, messages[1])
leave(first)

second = connect
second.subscribe(QUEUE, id: "1")
again = Array.new(2) { take(second, "MESSAGE") }
second.begin("dropped")
publish(second, "never", "transaction" => "dropped")
second.abort("dropped")
second.begin("kept")
publish(second, "first", "transaction" => "kept")
second.commit("kept")
after = take(second, "MESSAGE")
leave(second)

text = ->(message) { message.body.dup.force_encoding("UTF-8") }
puts JSON.generate(
  "version" => version, "bodies" => messages.map(&text), "colour" => messages[0].headers["colour"],
  "destination" => messages[0].headers["destination"],
  "again" => again.map { |message| [text.(message), message.headers["redelivered"]] }, "after" => text.(after)
)
