// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pin/tftp/v3"

	"github.com/caisson-os/caisson/internal/quota"
)

// TFTP has no handshake: whoever forges a sender's address has the answer sent
// there. So what one request can cause is kept small: a block is sent again only
// twice, and one address has few transfers at a time.
const (
	tftpRetries   = 2
	tftpTransfers = 64
	tftpPerClient = 4
)

// sender answers requests.
type sender struct {
	transfers *quota.Quota                     // by address
	say       func(format string, args ...any) // gets each transfer
}

func newSender(say func(format string, args ...any)) *sender {
	return &sender{quota.New(tftpTransfers, tftpPerClient), say}
}

var errBusy = errors.New("too many transfers")

func (s *sender) send(root *os.Root, name string, to io.ReaderFrom) (err error) {
	began, sent := time.Now(), int64(0)
	transfer, ok := to.(tftp.OutgoingTransfer)
	if ok {
		remote := transfer.RemoteAddr()
		defer func() { s.log(began, remote.String(), name, sent, err) }()
		give, err := s.transfers.Take(remote.IP.String())
		if err != nil {
			return errBusy
		}
		defer give()
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
func (s *sender) log(began time.Time, remote, name string, sent int64, err error) {
	how := "sent"
	if err != nil {
		how = err.Error()
	}
	s.say("%s %s TFTP %s %s %d B %s", began.UTC().Format(time.RFC3339), remote, name[:min(len(name), 200)], how, sent, time.Since(began).Round(time.Millisecond))
}
