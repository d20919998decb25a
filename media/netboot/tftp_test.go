// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	client "github.com/pin/tftp/v3"

	"github.com/caisson-os/caisson/test/require"
)

// serve serves files on an address and returns where, and what was logged.
func serve(t *testing.T, at string, s *TFTPServer) (addr string, log chan TFTPTransfer) {
	t.Helper()
	conn, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	log = make(chan TFTPTransfer, 1000)
	s.Log = func(t TFTPTransfer) { log <- t }
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, conn.(*net.UDPConn)) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn.LocalAddr().String(), log
}

func content(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7 / 3)
	}
	return data
}

// Clients of others get files whole, whatever their length, with and without options.
func TestRead(t *testing.T) {
	files := fstest.MapFS{}
	for _, n := range []int{0, 1, 511, 512, 513, 1024, 70_000 * 8} {
		files[fmt.Sprint("d/", n)] = &fstest.MapFile{Data: content(n)}
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		addr, _ := serve(t, at, &TFTPServer{Files: files})
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		if at == ":0" {
			addr = "127.0.0.3:" + port // the answer has to come from there
		}
		for name, want := range files {
			for _, size := range []int{0, 8, 1400, 65464} {
				if size == 8 && len(want.Data) > 2000 {
					size = 512
				}
				c, err := client.NewClient(addr)
				if err != nil {
					t.Fatal(err)
				}
				if size > 0 && size >= 512 {
					c.SetBlockSize(size)
					c.RequestTSize(true)
				}
				from, err := c.Receive(name, "octet")
				if err != nil {
					t.Fatalf("%s %s: %v", at, name, err)
				}
				var got bytes.Buffer
				if _, err := from.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), want.Data) {
					t.Errorf("%s %s in blocks of %d: %d bytes, %v", at, name, size, got.Len(), err)
				}
			}
		}
	}
}

// curl is a second client, and busybox a third.
func TestOtherClients(t *testing.T) {
	want := content(100_000)
	addr, _ := serve(t, "127.0.0.1:0", &TFTPServer{Files: fstest.MapFS{"boot.ipxe": &fstest.MapFile{Data: want}}})
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string][]string{"curl": {"--silent", "--show-error", "--tftp-blksize", "1432", "tftp://" + addr + "/boot.ipxe"}, "busybox": {"tftp", "-g", "-r", "boot.ipxe", "-l", "/dev/stdout", host, port}} {
		t.Run(tool, func(t *testing.T) {
			require.Tool(t, tool)
			got, err := exec.Command(tool, args...).Output()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// A request whose sender was forged causes one packet, no larger than a block; one that
// cannot be answered a short word.
func TestForgedRequestsAreAnsweredOnce(t *testing.T) {
	const wait = 50 * time.Millisecond
	addr, log := serve(t, "127.0.0.1:0", &TFTPServer{Files: fstest.MapFS{"boot.ipxe": &fstest.MapFile{Data: content(100_000)}}, Wait: wait})
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]int{
		"\x00\x01boot.ipxe\x00octet\x00":                                  516,
		"\x00\x01boot.ipxe\x00octet\x00tsize\x000\x00blksize\x001432\x00": 2 + len("blksize.1432.tsize.100000."),
		"\x00\x01none\x00octet\x00":                                       4 + len("no such file."),
		"\x00\x02boot.ipxe\x00octet\x00":                                  4 + len("files are only read."),
		"\x00\x01boot.ipxe":                                               0,
		"\x00\x04\x00\x01":                                                0,
	} {
		victim, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := victim.WriteToUDPAddrPort([]byte(request), to); err != nil {
			t.Fatal(err)
		}
		if want > 0 {
			<-log // the transfer is over
		}
		packets, size, buf := 0, 0, make([]byte, 2048)
		for {
			if err := victim.SetReadDeadline(time.Now().Add(4 * wait)); err != nil {
				t.Fatal(err)
			}
			n, _, err := victim.ReadFrom(buf)
			if err != nil {
				break
			}
			packets++
			size += n
		}
		if size != want || packets > 1 {
			t.Errorf("%q: %d packets of %d bytes, want one of %d", request, packets, size, want)
		}
		_ = victim.Close() // only looked at
	}
}

// One address has few transfers at a time, and its places come back.
func TestOneAddress(t *testing.T) {
	addr, log := serve(t, "127.0.0.1:0", &TFTPServer{Files: fstest.MapFS{"f": &fstest.MapFile{Data: content(10_000)}}, Wait: 300 * time.Millisecond})
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	victim, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Close() // only looked at
	how := map[string]int{}
	for range 3 {
		for range 10 {
			if _, err := victim.WriteToUDPAddrPort([]byte("\x00\x01f\x00octet\x00"), to); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			how[(<-log).Err.Error()]++
		}
	}
	if busy, silent := how[errBusy.Error()], how[errSilent.Error()]; busy+silent != 30 || silent < 3 || silent == 30 {
		t.Errorf("%v", how)
	}
	c, err := client.NewClient(addr)
	if err != nil {
		t.Fatal(err)
	}
	from, err := c.Receive("f", "octet")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := from.WriteTo(io.Discard); err != nil || n != 10_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A block that is lost is sent again, once somebody is there.
func TestLostBlocks(t *testing.T) {
	addr, log := serve(t, "127.0.0.1:0", &TFTPServer{Files: fstest.MapFS{"f": &fstest.MapFile{Data: content(600)}}, Wait: 50 * time.Millisecond})
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // only looked at
	if _, err := c.WriteToUDPAddrPort([]byte("\x00\x01f\x00octet\x00"), to); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	read := func() (block byte, from netip.AddrPort) {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil || n < 4 {
			t.Fatal(n, err)
		}
		return buf[3], from
	}
	_, from := read()
	if _, err := c.WriteToUDPAddrPort([]byte{0, opAck, 0, 1}, from); err != nil {
		t.Fatal(err)
	}
	for range retries {
		if block, _ := read(); block != 2 {
			t.Errorf("block %d, want 2 again", block)
		}
	}
	if last := <-log; last.Err != errSilent || last.Sent != 512 {
		t.Errorf("%+v", last)
	}
}

// A client that acknowledges each block in time has no end by that alone.
func TestATransferHasAnEnd(t *testing.T) {
	one := &tftpTransfer{heard: true, until: time.Now().Add(-time.Second)}
	if err := one.send([]byte("x")); err == nil || err.Error() != "it took too long" {
		t.Errorf("%v", err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte("\x00\x01boot.ipxe\x00octet\x00blksize\x001432\x00"))
	f.Fuzz(func(t *testing.T, p []byte) {
		if r, ok := parseRequest(p); ok && (r.name == "" || strings.Contains(r.name, "\x00")) {
			t.Errorf("%q", r.name)
		}
		destination(p)
	})
}
