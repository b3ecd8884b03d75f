# Reports how CGI.pm and JSON::PP read a request. Prints its port.
use strict;
use warnings;
use IO::Socket::INET;
use JSON::PP;
use CGI ();

$CGI::LIST_CONTEXT_WARN = 0;
my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 64, ReuseAddr => 1) or die $!;
$| = 1;
print $server->sockport, "\n";

sub leaves {
    my ($place, $value, $name, $out) = @_;
    if (ref $value eq 'HASH') {
        leaves($place, $value->{$_}, $name eq '' ? $_ : "$name.$_", $out) for keys %$value;
    } elsif (ref $value eq 'ARRAY') {
        leaves($place, $_, $name, $out) for @$value;
    } else {
        push @$out, [$place, $name, defined $value ? "$value" : ''];
    }
}

while (my $c = $server->accept) {
    binmode $c;
    my $head = '';
    while (my $l = <$c>) { $head .= $l; last if $l eq "\r\n"; }
    my ($first, @lines) = split /\r\n/, $head;
    my ($method, $target) = split / /, $first // '';
    next unless defined $target;
    my %env = (REQUEST_METHOD => $method, GATEWAY_INTERFACE => 'CGI/1.1', SERVER_PROTOCOL => 'HTTP/1.1');
    for (@lines) {
        my ($k, $v) = /^([^:]+):\s*(.*)$/ or next;
        ($k = uc $k) =~ tr/-/_/;
        $k = "HTTP_$k" unless $k eq 'CONTENT_TYPE' || $k eq 'CONTENT_LENGTH';
        $env{$k} = $v;
    }
    my ($path, $query) = split /\?/, $target, 2;
    @env{qw(QUERY_STRING SCRIPT_NAME PATH_INFO)} = ($query // '', '', $path);
    my $body = '';
    read $c, $body, $env{CONTENT_LENGTH} if $env{CONTENT_LENGTH};
    my $type = lc($env{CONTENT_TYPE} // '');
    my @out;
    my $fields = [];
    my $error = '';
    {
        local %ENV = (%ENV, %env);
        local *STDIN;
        open STDIN, '<', \$body;
        binmode STDIN;
        local *STDERR;
        open STDERR, '>', '/dev/null';
        CGI::initialize_globals();
        my $q = eval { CGI->new };
        $error = $@ ? 'CGI.pm failed' : ($q && $q->cgi_error ? $q->cgi_error : '');
        my $place = $body ne '' ? 'body' : 'query';
        if ($q) {
            for my $name ($q->param) {
                for my $v ($q->multi_param($name)) {
                    if (ref $v && fileno $v) {
                        my $content = do { local $/; <$v> };
                        push @$fields, ['filename', $name, "$v"], ['file', $name, $content // ''];
                    } elsif ($name eq 'POSTDATA' || $name eq 'PUTDATA') {
                        next; # the whole body, of a type that it does not read
                    } else {
                        push @$fields, [$place, $name, "$v"];
                    }
                }
            }
            for my $name ($q->url_param) {
                push @$fields, ['query', $name, $_] for $q->url_param($name);
            }
        }
    }
    my $kind = $body eq '' ? 'query' : $type =~ /^multipart/ ? 'multipart' : 'form';
    push @out, {reader => 'perl-cgi', kind => $kind, method => $method, fields => $fields, error => $error};
    if ($body ne '') {
        my $got = [];
        $error = '';
        eval { leaves('body', JSON::PP->new->utf8->allow_nonref->decode($body), '', $got); 1 } or $error = 'no JSON';
        push @out, {reader => 'perl-json', kind => ($type =~ /json/ ? 'json' : 'untyped'), method => $method, fields => $got, error => $error};
        $got = []; $error = '';
        eval { leaves('body', JSON::PP->new->allow_nonref->relaxed->loose->allow_barekey->allow_singlequote->decode($body), '', $got); 1 } or $error = 'no JSON';
        push @out, {reader => 'perl-json-relaxed', kind => ($type =~ /json/ ? 'json' : 'untyped'), method => $method, fields => $got, error => $error};
    }
    my $json = JSON::PP->new->utf8->encode({readings => \@out});
    print $c "HTTP/1.1 200 OK\r\nContent-Length: " . length($json) . "\r\nConnection: close\r\n\r\n$json";
    close $c;
}
