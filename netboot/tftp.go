// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pin/tftp/v3"
)

// TFTP has no handshake: whoever forges a sender's address has the answer sent
// there. So what one request can cause is kept small: a block is sent again only
// twice, and one address has few transfers at a time.
const (
	tftpRetries   = 2
	tftpTransfers = 64
	tftpPerClient = 4
)

// places counts transfers.
type places struct {
	mu    sync.Mutex
	total int
	from  map[string]int                   // by address
	say   func(format string, args ...any) // gets each transfer
}

var errBusy = errors.New("too many transfers")

func (p *places) take(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total >= tftpTransfers || p.from[host] >= tftpPerClient {
		return false
	}
	p.total++
	p.from[host]++
	return true
}

func (p *places) give(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.from[host]--; p.from[host] == 0 {
		delete(p.from, host)
	}
}

func (p *places) send(root *os.Root, name string, to io.ReaderFrom) (err error) {
	began, sent := time.Now(), int64(0)
	transfer, ok := to.(tftp.OutgoingTransfer)
	if ok {
		remote := transfer.RemoteAddr()
		defer func() { p.log(began, remote.String(), name, sent, err) }()
		host := remote.IP.String()
		if !p.take(host) {
			return errBusy
		}
		defer p.give(host)
	}
	f, err := filesOnly{root.FS()}.Open(strings.TrimLeft(name, "/"))
	if err != nil {
		return errors.New("no such file") // paths of this machine are its own concern
	}
	defer f.Close() // only read
	if info, err := f.Stat(); err == nil && ok {
		transfer.SetSize(info.Size())
	}
	sent, err = to.ReadFrom(f)
	return err
}

// log says a transfer in the form of an HTTP request.
func (p *places) log(began time.Time, remote, name string, sent int64, err error) {
	how := "sent"
	if err != nil {
		how = err.Error()
	}
	p.say("%s %s TFTP %s %s %d B %s", began.UTC().Format(time.RFC3339), remote, name[:min(len(name), 200)], how, sent, time.Since(began).Round(time.Millisecond))
}
