// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
)

// Options say where a directory is served, and how much of it at a time.
type Options struct {
	HTTP, TFTP string             // addresses; an empty one turns a server off
	Limits     httpserver.Options // of HTTP
	Transfers  int                // by TFTP at once; 0 is [tftp.UsualTransfers]
	Say        func(format string, args ...any)
}

// Serve serves a directory by HTTP and TFTP, read-only, until ctx ends. The options' Say
// gets the addresses and each request. What lies outside the directory cannot be asked
// for: os.Root refuses it. Directories are not listed.
func Serve(ctx context.Context, root *os.Root, o Options) error {
	files := filesOnly{root.FS()}
	failed := make(chan error, 2)
	if o.HTTP != "" {
		l, err := net.Listen("tcp", o.HTTP)
		if err != nil {
			return cli.WithHint(fmt.Errorf("serve HTTP: %w", err), "--http takes another address, an empty one turns HTTP off")
		}
		o.Say("serving HTTP on %s", l.Addr())
		limits := o.Limits
		limits.Log = func(r httpserver.Request) { o.Say("%s", r) }
		go func() { failed <- httpserver.Serve(ctx, l, http.FileServerFS(files), limits) }()
	}
	if o.TFTP != "" {
		conn, err := net.ListenPacket("udp", o.TFTP)
		if err != nil {
			return cli.WithHint(fmt.Errorf("serve TFTP: %w", err),
				"ports below 1024 need root; --tftp takes another address, an empty one turns TFTP off")
		}
		o.Say("serving TFTP on %s", conn.LocalAddr())
		s := TFTPServer{Files: files, Transfers: o.Transfers, Log: func(t TFTPTransfer) { o.Say("%s", line(t)) }}
		go func() { failed <- s.Serve(ctx, conn.(*net.UDPConn)) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// line is a transfer by TFTP in the form of a request of HTTP.
func line(t TFTPTransfer) string {
	how := "sent"
	if t.Err != nil {
		how = t.Err.Error()
	}
	return fmt.Sprintf("%s %s TFTP %s %s %d B %s", t.Began.UTC().Format(time.RFC3339), t.Remote,
		t.Name[:min(len(t.Name), 200)], how, t.Sent, time.Since(t.Began).Round(time.Millisecond))
}

// filesOnly hides directories: http.FileServer would list them.
type filesOnly struct{ fs.FS }

func (f filesOnly) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		_ = file.Close() // err says why it is not served
		return nil, err
	}
	return file, nil
}

// localAddress says where a request came in: the answer comes from there. The zero value is not
// known, and the kernel decides.
type localAddress struct {
	ip    netip.Addr
	index int // of the interface
}

// tellDestination has the kernel say with each datagram where it came in.
func tellDestination(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var four, six error
	err = raw.Control(func(fd uintptr) {
		four = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		six = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	if four != nil && six != nil { // one of them a socket has
		err = errors.Join(err, four, six)
	}
	return err
}

// destination reads what [tellDestination] asked for.
func destination(control []byte) localAddress {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return localAddress{}
	}
	for _, m := range list {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			// interface, address of the interface, destination: which may be a broadcast
			return localAddress{netip.AddrFrom4([4]byte(m.Data[4:8])), int(binary.NativeEndian.Uint32(m.Data))}
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return localAddress{netip.AddrFrom16([16]byte(m.Data[:16])).Unmap(), int(binary.NativeEndian.Uint32(m.Data[16:]))}
		}
	}
	return localAddress{}
}

// address is from where to answer.
func (l localAddress) address() *net.UDPAddr {
	if !l.ip.IsValid() || l.ip.IsMulticast() || l.ip.IsUnspecified() || l.ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return nil
	}
	a := &net.UDPAddr{IP: l.ip.AsSlice()}
	if card, err := net.InterfaceByIndex(l.index); err == nil && l.ip.IsLinkLocalUnicast() && l.ip.Is6() {
		a.Zone = card.Name
	}
	return a
}

// room returns how large a block may be, so that no packet to a client is taken apart.
func (l localAddress) room(to netip.AddrPort) int {
	heads := 20 + 8 + 4 // of IP, UDP, TFTP
	if !to.Addr().Unmap().Is4() {
		heads += 20
	}
	mtu := 1280
	if card, err := net.InterfaceByIndex(l.index); err == nil {
		mtu = card.MTU
	}
	return max(usual, min(largest, mtu-heads))
}
