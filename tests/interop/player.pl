# Plays Net::Stomp against a broker over TCP: perl player.pl HOST PORT VERSION QUEUE
# Prints one line of JSON with what it saw; test_debian.py says what is right.
use strict;
use warnings;
use Encode qw(decode_utf8 encode_utf8);
use JSON::PP;
use Net::Stomp;
use utf8;

my ($host, $port, $version, $queue) = @ARGV;

sub connection {
    my $stomp = Net::Stomp->new({ hostname => $host, port => $port, timeout => 10 });
    my %versions = $version eq "1.0" ? () : ("accept-version" => $version, host => $host);
    my $connected = $stomp->connect({ login => "guest", passcode => "guest", %versions });
    die "no CONNECTED" unless $connected->command eq "CONNECTED";
    return ($stomp, $connected->headers->{version});
}

sub take {
    my ($stomp) = @_;
    my $frame = $stomp->receive_frame({ timeout => 10 }) or die "no message";
    die $frame->as_string unless $frame->command eq "MESSAGE";
    return $frame;
}

sub ack {
    my ($stomp, $frame) = @_;
    my %more = $version eq "1.0" ? () : $version eq "1.1" ? (subscription => "1") : (id => $frame->headers->{ack});
    $stomp->ack({ frame => $frame, %more });
}

my ($first, $spoken) = connection();
for my $body ("one", "two: grün", "three\0") {
    $first->send_with_receipt({ destination => $queue, body => encode_utf8($body), bytes_message => 1, colour => "red" }) or die "no receipt";
}
$first->subscribe({ destination => $queue, id => "1", ack => "client-individual" });
my @messages = map { take($first) } 1 .. 3;
ack($first, $messages[1]);
$first->disconnect;

my ($second) = connection();
$second->subscribe({ destination => $queue, id => "1", ack => "client-individual" });
my @again = map { take($second) } 1 .. 2;
ack($second, $_) for @again;
$second->send_transactional({ destination => $queue, body => "first" }) or die "not committed";
my $after = take($second);
ack($second, $after);
$second->disconnect;

print encode_json({
    version => $spoken, bodies => [map { decode_utf8($_->body) } @messages], colour => $messages[0]->headers->{colour},
    destination => $messages[0]->headers->{destination},
    again => [map { [decode_utf8($_->body), $_->headers->{redelivered}] } @again], after => $after->body,
}), "\n";
