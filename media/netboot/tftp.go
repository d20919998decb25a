// SPDX-License-Identifier: Apache-2.0

// Files are served by TFTP read-only, with options for the size of blocks and of the file: RFC
// 1350, 2347, 2348, 2349.
//
// TFTP has no handshake: the answer goes to a forged sender's address.
// So one packet answers a request, and there is no second before an acknowledgement has
// shown that a client is there. A client that misses the one asks again by itself.

package netboot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/httpserver"
)

// TFTPServer are the files, and what clients may take.
type TFTPServer struct {
	Files     fs.FS
	Transfers int           // at once; 0 is [UsualTransfers]. One address may have 4
	Wait      time.Duration // for an acknowledgement; 0 is 3 s
	Log       func(TFTPTransfer)
}

// UsualTransfers is how many transfers there are at once.
const UsualTransfers = 64

const (
	perClient = 4
	retries   = 5         // of a block whose client has acknowledged another
	longest   = time.Hour // that a transfer may take: firmware with small blocks and a slow way is slow
	shortest  = 8         // bytes in a block, and
	usual     = 512
	largest   = 65464
)

// TFTPTransfer is one that is over. Name was written by a stranger.
type TFTPTransfer struct {
	Began  time.Time
	Remote netip.AddrPort
	Name   string
	Sent   int64
	Err    error
}

var (
	errBusy   = errors.New("too many transfers")
	errNoFile = errors.New("no such file") // paths of this machine are its own concern
	errSilent = errors.New("no acknowledgement")
)

// Operations and an error's code, see RFC 1350.
const (
	opRead    = 1
	opWrite   = 2
	opData    = 3
	opAck     = 4
	opError   = 5
	opOptions = 6
)

// Serve answers on conn until ctx ends, and closes it.
func (s *TFTPServer) Serve(ctx context.Context, conn *net.UDPConn) error {
	if err := tellDestination(conn); err != nil {
		return err
	}
	var transfers sync.WaitGroup
	defer transfers.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // the reading ends
	defer stop()
	defer conn.Close() // only datagrams went through it
	places := httpserver.NewQuota(cmp.Or(s.Transfers, UsualTransfers), perClient)
	buf, control := make([]byte, 2048), make([]byte, 256)
	for {
		n, more, _, from, err := conn.ReadMsgUDPAddrPort(buf, control)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		r, ok := parseRequest(buf[:n])
		if !ok {
			continue // nobody is answered who does not ask
		}
		r.from, r.to = from, destination(control[:more])
		give, full := places.Take(from.Addr().Unmap().String())
		if full != nil {
			_, _ = conn.WriteToUDPAddrPort(errorPacket(errBusy), from) // it asks again
			s.log(r, 0, errBusy)
			continue
		}
		transfers.Go(func() {
			defer give()
			sent, err := s.answer(ctx, r)
			s.log(r, sent, err)
		})
	}
}

func (s *TFTPServer) log(r tftpRequest, sent int64, err error) {
	s.Log(TFTPTransfer{Began: r.began, Remote: r.from, Name: r.name, Sent: sent, Err: err})
}

// tftpRequest is one to read a file.
type tftpRequest struct {
	began   time.Time
	name    string
	write   bool
	options map[string]string
	from    netip.AddrPort
	to      localAddress
}

func parseRequest(p []byte) (tftpRequest, bool) {
	if len(p) < 4 || p[0] != 0 || p[1] != opRead && p[1] != opWrite || p[len(p)-1] != 0 {
		return tftpRequest{}, false
	}
	words := strings.Split(string(bytes.TrimSuffix(p[2:], []byte{0})), "\x00")
	if len(words) < 2 || words[0] == "" {
		return tftpRequest{}, false
	}
	r := tftpRequest{began: time.Now(), name: words[0], write: p[1] == opWrite, options: map[string]string{}}
	for i := 2; i+1 < len(words); i += 2 {
		r.options[strings.ToLower(words[i])] = words[i+1]
	}
	return r, true
}

// answer sends a file, from a port of its own.
func (s *TFTPServer) answer(ctx context.Context, r tftpRequest) (int64, error) {
	conn, err := net.DialUDP("udp", r.to.address(), net.UDPAddrFromAddrPort(r.from))
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // the transfer ends
	defer stop()
	defer conn.Close() // only datagrams went through it
	refuse := func(err error) (int64, error) {
		_, _ = conn.Write(errorPacket(err)) // a client that misses it asks again
		return 0, err
	}
	if r.write {
		return refuse(errors.New("files are only read"))
	}
	f, err := s.Files.Open(strings.TrimLeft(r.name, "/"))
	if err != nil {
		return refuse(errNoFile)
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return refuse(errNoFile)
	}
	t := &tftpTransfer{conn: conn, wait: cmp.Or(s.Wait, 3*time.Second), until: time.Now().Add(longest), size: usual}
	if head := t.agree(r, info.Size()); head != nil {
		if err := t.send(head); err != nil {
			return 0, err
		}
	}
	sent, err := t.file(f)
	return sent, err
}

// tftpTransfer is one that is under way.
type tftpTransfer struct {
	conn  *net.UDPConn
	wait  time.Duration
	until time.Time
	size  int    // of a block
	block uint16 // that was sent last
	heard bool   // the client has acknowledged something
}

// agree returns the packet that grants options, nil where there are none.
func (t *tftpTransfer) agree(r tftpRequest, size int64) []byte {
	head := []byte{0, opOptions}
	grant := func(name, value string) { head = append(head, name+"\x00"+value+"\x00"...) }
	if n, err := strconv.Atoi(r.options["blksize"]); err == nil && n >= shortest && n <= largest {
		t.size = min(n, r.to.room(r.from))
		grant("blksize", strconv.Itoa(t.size))
	}
	if _, ok := r.options["tsize"]; ok {
		grant("tsize", strconv.FormatInt(size, 10))
	}
	if len(head) == 2 {
		return nil
	}
	return head
}

// file sends a file, in blocks of which the last is a short one.
func (t *tftpTransfer) file(f io.Reader) (sent int64, err error) {
	packet := make([]byte, 4+t.size)
	for {
		n, err := io.ReadFull(f, packet[4:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			_, _ = t.conn.Write(errorPacket(errors.New("the file cannot be read"))) // err says more
			return sent, err
		}
		t.block++
		packet[0], packet[1], packet[2], packet[3] = 0, opData, byte(t.block>>8), byte(t.block)
		if err := t.send(packet[:4+n]); err != nil {
			return sent, err
		}
		if sent += int64(n); n < t.size {
			return sent, nil
		}
	}
}

// send sends a packet until it is acknowledged; the first one once.
func (t *tftpTransfer) send(packet []byte) error {
	tries := retries
	if !t.heard {
		tries = 1
	}
	for range tries {
		if time.Now().After(t.until) {
			return errors.New("it took too long")
		}
		if _, err := t.conn.Write(packet); err != nil {
			return err
		}
		switch ok, err := t.acknowledged(); {
		case err != nil:
			return err
		case ok:
			t.heard = true
			return nil
		}
	}
	return errSilent
}

// acknowledged waits for the client's word on the last block. Of an earlier one it is
// too late: answering it would double every packet from there on.
func (t *tftpTransfer) acknowledged() (bool, error) {
	if err := t.conn.SetReadDeadline(time.Now().Add(t.wait)); err != nil {
		return false, err
	}
	buf := make([]byte, 256)
	for {
		n, err := t.conn.Read(buf)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return false, nil
		case err != nil:
			return false, err
		case n >= 4 && buf[0] == 0 && buf[1] == opAck && buf[2] == byte(t.block>>8) && buf[3] == byte(t.block):
			return true, nil
		case n >= 4 && buf[0] == 0 && buf[1] == opError:
			return false, errors.New("the client ended it: " + string(bytes.Trim(buf[4:n], "\x00")))
		}
	}
}

func errorPacket(err error) []byte {
	code := byte(0)
	if errors.Is(err, errNoFile) {
		code = 1
	}
	return append([]byte{0, opError, 0, code}, err.Error()+"\x00"...)
}
