// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
)

func (a *app) serveCommand() *cobra.Command {
	var listen string
	var o httpserver.Options
	c := &cobra.Command{
		Use:   "serve oci:DIR",
		Short: "Serve an OCI layout as a read-only registry",
		Long: "Serve an OCI layout as a read-only registry, with all that booting nodes ask for: conditional\n" +
			"requests, ranges, referrers. Any prefix before the repository is accepted. What is published to\n" +
			"the layout meanwhile is served at once. Without --client-ca or --users-file, everybody who can\n" +
			"reach the address can list tags and read every overlay.\n\n" +
			"Each request is a line on standard error, unless --quiet is given: time, address, method, path,\n" +
			"status, bytes, duration, and client; agents add the name of their node. Machines that find no overlay are\n" +
			"kept for 'caisson unknown'.",
		Example: "  caisson serve oci:out --listen :5000",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := oci.ParseRef(args[0])
			if err != nil || !ref.IsLayout() {
				return cli.Usage("as in oci:./out", "%q is not an OCI layout", args[0])
			}
			if _, err := pull.Open(ref, pull.Options{}); err != nil {
				return cli.Usage("'caisson build' makes one with --to "+args[0]+", or 'caisson publish' for a site without a layer", "%w", err)
			}
			if (o.CertFile == "") != (o.KeyFile == "") {
				return cli.Usage("", "TLS needs both --tls-cert and --tls-key")
			}
			if err := o.Check(); err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return cli.WithHint(fmt.Errorf("serve: %w", err), "--listen takes another address, as in 127.0.0.1:5001")
			}
			served := map[string]string{"address": l.Addr().String(), "layout": ref.Layout}
			shown := a.show(served, func() { _, err = fmt.Fprintln(a.out, l.Addr()) })
			if err := cmp.Or(shown, err); err != nil {
				return err
			}
			a.say("serving %s on %s, end with Ctrl-C", ref, l.Addr())
			h, err := registry.Handler(ref.Layout)
			if err != nil {
				return err
			}
			if o.Log, err = a.requestLog(ref); err != nil {
				return err
			}
			return httpserver.Serve(c.Context(), l, h, o)
		},
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:5000", "address to listen on")
	f.StringVar(&o.CertFile, "tls-cert", "", "certificate `FILE` to serve TLS with")
	f.StringVar(&o.KeyFile, "tls-key", "", "private key `FILE` of the certificate, mode 0600")
	f.StringVar(&o.ClientCA, "client-ca", "", "answer only clients whose certificate the authorities in `FILE` have signed")
	f.StringVar(&o.UsersFile, "users-file", "", "answer only clients that know a user:password line of `FILE`, mode 0600")
	limitFlags(f, &o)
	return c
}
