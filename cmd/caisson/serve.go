// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

func (a *app) serveCommand() *cobra.Command {
	var listen, cert, key string
	c := &cobra.Command{
		Use:   "serve oci:DIR",
		Short: "Serve an OCI layout as a read-only registry",
		Long: "Serve an OCI layout as a read-only registry, with all that booting nodes ask for: conditional\n" +
			"requests, ranges, referrers. Any prefix before the repository is accepted. What is published to\n" +
			"the layout meanwhile is served at once.",
		Example: "  caisson serve oci:out --listen :5000",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := oci.ParseRef(args[0])
			if err != nil || !ref.IsLayout() {
				return cli.Usage("as in oci:./out", "%q is not an OCI layout", args[0])
			}
			if _, err := oci.Open(ref, oci.Options{}); err != nil {
				return cli.Usage("'caisson build' makes one with --to "+args[0]+", or 'caisson publish' for a site without a layer", "%w", err)
			}
			if (cert == "") != (key == "") {
				return cli.Usage("", "TLS needs both --tls-cert and --tls-key")
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return cli.WithHint(fmt.Errorf("serve: %w", err), "--listen takes another address, as in 127.0.0.1:5001")
			}
			if a.json() {
				err = cli.JSON(a.out, map[string]string{"address": l.Addr().String(), "layout": ref.Layout})
			} else {
				_, err = fmt.Fprintln(a.out, l.Addr())
			}
			if err != nil {
				return err
			}
			a.say("serving %s on %s, end with Ctrl-C", ref, l.Addr())
			return serve(c.Context(), l, ref.Layout, cert, key)
		},
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:5000", "address to listen on")
	f.StringVar(&cert, "tls-cert", "", "certificate `FILE` to serve TLS with")
	f.StringVar(&key, "tls-key", "", "private key `FILE` of the certificate")
	return c
}

// serve answers until the context ends, then lets requests finish for a while.
func serve(ctx context.Context, l net.Listener, dir, cert, key string) error {
	s := &http.Server{
		Handler:           registry.Handler(dir),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(grace) // after the grace the program ends all the same
	})
	defer stop()
	var err error
	if cert != "" {
		err = s.ServeTLS(l, cert, key)
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}
