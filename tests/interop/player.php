<?php
// Plays the extension stomp against a broker over TCP: php player.php HOST PORT VERSION QUEUE
// Prints one line of JSON with what it saw; test_debian.py says what is right.
[, $host, $port, $version, $queue] = $argv;

function connection(): Stomp
{
    global $host, $port, $version;
    $headers = $version === '1.0' ? [] : ['accept-version' => $version, 'host' => $host];
    $stomp = new Stomp("tcp://$host:$port", 'guest', 'guest', $headers);
    $stomp->setReadTimeout(10);
    return $stomp;
}

function check(mixed $done, string $step): mixed
{
    return $done ?: throw new Exception("$step failed");
}

function ack(Stomp $stomp, StompFrame $frame): void
{
    global $version;
    $more = match ($version) { '1.0' => [], '1.1' => ['subscription' => '1'], default => ['id' => $frame->headers['ack']] };
    check($stomp->ack($frame, $more + ['receipt' => 'acked']), 'ack');
}

$first = connection();
foreach (['one', 'two: grün', "three\0"] as $number => $body) {
    $headers = ['colour' => 'red', 'content-length' => strlen($body), 'receipt' => "r$number"];
    check($first->send($queue, $body, $headers), "receipt of $number");
}
check($first->subscribe($queue, ['id' => '1', 'ack' => 'client-individual', 'receipt' => 's']), 'subscribe');
$messages = array_map(fn () => check($first->readFrame(), 'message'), range(1, 3));
ack($first, $messages[1]);
unset($first);

$second = connection();
check($second->subscribe($queue, ['id' => '1', 'ack' => 'client-individual', 'receipt' => 's']), 'subscribe again');
$again = array_map(fn () => check($second->readFrame(), 'message again'), range(1, 2));
array_walk($again, fn ($frame) => ack($second, $frame));
check($second->begin('dropped', ['receipt' => 'b1']), 'begin');
check($second->send($queue, 'never', ['transaction' => 'dropped', 'receipt' => 't1']), 'send');
check($second->abort('dropped', ['receipt' => 'a1']), 'abort');
check($second->begin('kept', ['receipt' => 'b2']), 'begin');
check($second->send($queue, 'first', ['transaction' => 'kept', 'receipt' => 't2']), 'send');
check($second->commit('kept', ['receipt' => 'c2']), 'commit');
$after = check($second->readFrame(), 'message after COMMIT');
ack($second, $after);

echo json_encode([
    'version' => isset($messages[0]->headers['ack']) ? '1.2' : $version,
    'bodies' => array_map(fn ($frame) => $frame->body, $messages),
    'colour' => $messages[0]->headers['colour'],
    'destination' => $messages[0]->headers['destination'],
    'again' => array_map(fn ($frame) => [$frame->body, $frame->headers['redelivered']], $again),
    'after' => $after->body,
]), "\n";
