// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pin/tftp/v3"

	"github.com/caisson-os/caisson/internal/cli"
)

// Serve serves a directory by HTTP and TFTP, read-only, until ctx ends. An empty
// address turns a server off; say gets the addresses. What lies outside the
// directory cannot be asked for: os.Root refuses it.
func Serve(ctx context.Context, root *os.Root, httpAddr, tftpAddr string, say func(format string, args ...any)) error {
	failed := make(chan error, 2)
	if httpAddr != "" {
		l, err := net.Listen("tcp", httpAddr)
		if err != nil {
			return cli.WithHint(fmt.Errorf("serve HTTP: %w", err), "--http takes another address, an empty one turns HTTP off")
		}
		s := &http.Server{Handler: http.FileServerFS(root.FS()), ReadHeaderTimeout: 10 * time.Second}
		defer s.Close() // the program ends with it
		say("serving HTTP on %s", l.Addr())
		go func() { failed <- s.Serve(l) }()
	}
	if tftpAddr != "" {
		conn, err := net.ListenPacket("udp", tftpAddr)
		if err != nil {
			return cli.WithHint(fmt.Errorf("serve TFTP: %w", err), "ports below 1024 need root; --tftp takes another address, an empty one turns TFTP off")
		}
		s := tftp.NewServer(func(name string, to io.ReaderFrom) error { return sendTFTP(root, name, to) }, nil)
		s.SetTimeout(5 * time.Second)
		defer s.Shutdown()
		say("serving TFTP on %s", conn.LocalAddr())
		go func() { failed <- s.Serve(conn.(*net.UDPConn)) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}
}

func sendTFTP(root *os.Root, name string, to io.ReaderFrom) error {
	f, err := root.Open(strings.TrimLeft(name, "/"))
	if err != nil {
		return err
	}
	defer f.Close() // only read
	if info, err := f.Stat(); err == nil {
		if sized, ok := to.(tftp.OutgoingTransfer); ok {
			sized.SetSize(info.Size())
		}
	}
	_, err = to.ReadFrom(f)
	return err
}
