// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/pin/tftp/v3"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
)

// Serve serves a directory by HTTP and TFTP, read-only, until ctx ends. An empty
// address turns a server off; say gets the addresses and each request. What lies outside the
// directory cannot be asked for: os.Root refuses it. Directories are not listed.
func Serve(ctx context.Context, root *os.Root, httpAddr, tftpAddr string, say func(format string, args ...any)) error {
	failed := make(chan error, 2)
	if httpAddr != "" {
		l, err := net.Listen("tcp", httpAddr)
		if err != nil {
			return cli.WithHint(fmt.Errorf("serve HTTP: %w", err), "--http takes another address, an empty one turns HTTP off")
		}
		say("serving HTTP on %s", l.Addr())
		go func() {
			failed <- httpserver.Serve(ctx, l, http.FileServerFS(filesOnly{root.FS()}), httpserver.Options{Log: func(r httpserver.Request) { say("%s", r) }})
		}()
	}
	if tftpAddr != "" {
		conn, err := net.ListenPacket("udp", tftpAddr)
		if err != nil {
			return cli.WithHint(fmt.Errorf("serve TFTP: %w", err), "ports below 1024 need root; --tftp takes another address, an empty one turns TFTP off")
		}
		files := newSender(say)
		s := tftp.NewServer(func(name string, to io.ReaderFrom) error { return files.send(root, name, to) }, nil)
		s.SetTimeout(3 * time.Second)
		s.SetRetries(tftpRetries)
		defer s.Shutdown()
		say("serving TFTP on %s", conn.LocalAddr())
		go func() { failed <- s.Serve(conn.(*net.UDPConn)) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
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
