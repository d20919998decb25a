// SPDX-License-Identifier: Apache-2.0

package main

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
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
)

func (a *app) netbootServeCommand() *cobra.Command {
	var httpAddr, tftpAddr string
	c := &cobra.Command{
		Use:   "serve DIR",
		Short: "Serve a netboot folder by HTTP and TFTP, read-only",
		Long: "Serve a netboot folder by HTTP and TFTP, read-only. TFTP gives boot.ipxe (and everything\n" +
			"else) to firmware that knows nothing better; an empty address turns a server off.",
		Example: "  caisson netboot serve boot",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			root, err := os.OpenRoot(names[0])
			if err != nil {
				return cli.Usage("'caisson netboot' writes it, with --out "+names[0], "netboot folder: %w", err)
			}
			defer root.Close() // only read
			if _, err := root.Stat("boot.ipxe"); err != nil {
				return cli.Usage("'caisson netboot' writes it, with --out "+names[0], "%s is no netboot folder: no boot.ipxe in it", names[0])
			}
			return a.serveNetboot(c.Context(), root, httpAddr, tftpAddr)
		},
	}
	c.Flags().StringVar(&httpAddr, "http", ":8080", "address for HTTP")
	c.Flags().StringVar(&tftpAddr, "tftp", ":69", "address for TFTP")
	return c
}

// serveNetboot serves until ctx ends. What lies outside the folder cannot be
// asked for: os.Root refuses it.
func (a *app) serveNetboot(ctx context.Context, root *os.Root, httpAddr, tftpAddr string) error {
	failed := make(chan error, 2)
	if httpAddr != "" {
		l, err := net.Listen("tcp", httpAddr)
		if err != nil {
			return cli.WithHint(fmt.Errorf("serve HTTP: %w", err), "--http takes another address, an empty one turns HTTP off")
		}
		s := &http.Server{Handler: http.FileServerFS(root.FS()), ReadHeaderTimeout: 10 * time.Second}
		defer s.Close() // the program ends with it
		a.say("serving HTTP on %s", l.Addr())
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
		a.say("serving TFTP on %s", conn.LocalAddr())
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
