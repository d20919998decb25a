// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/relay"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
)

// relaying are the flags of fleet relay.
type relaying struct {
	access
	listen string
	o      relay.Options
	most   int64 // GiB
	http   httpserver.Options
}

func (a *app) fleetRelayCommand() *cobra.Command {
	var v relaying
	c := verb("fleet relay", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		return a.relay(c.Context(), &v, args[0])
	})
	f := c.Flags()
	v.access.flags(a, f)
	f.StringVar(&v.o.Dir, "dir", "", "`DIR` where content is kept; nothing else may be in it")
	f.StringVar(&v.listen, "listen", "127.0.0.1:5001", "address to listen on")
	f.Int64Var(&v.most, "keep", 20, "`GiB` that the directory may take; what was not asked for longest leaves first")
	f.DurationVar(&v.o.Fresh, "fresh", 30*time.Second, "how long the answer for a tag counts")
	f.StringVar(&v.http.CertFile, "tls-cert", "", "certificate `FILE` to serve TLS with")
	f.StringVar(&v.http.KeyFile, "tls-key", "", "private key `FILE` of the certificate, mode 0600")
	f.StringVar(&v.http.ClientCA, "client-ca", "", "answer only clients whose certificate the authorities in `FILE` have signed")
	f.StringVar(&v.http.UsersFile, "users-file", "", "answer only clients that know a user:password line of `FILE`, mode 0600")
	limitFlags(f, &v.http)
	cobra.CheckErr(c.MarkFlagRequired("dir"))
	return c
}

func (a *app) relay(ctx context.Context, v *relaying, name string) error {
	ref, err := oci.ParseRef(name)
	switch {
	case err == nil && ref.IsLayout():
		return cli.Usage("'caisson serve' serves a directory", "%q is not a registry", name)
	case (v.http.CertFile == "") != (v.http.KeyFile == ""):
		return cli.Usage("", "TLS needs both --tls-cert and --tls-key")
	case v.most < 1 || v.o.Fresh <= 0:
		return cli.Usage("", "--keep and --fresh are above 0")
	}
	from, err := v.open(name)
	if err := cmp.Or(err, v.http.Check()); err != nil {
		return err
	}
	v.o.Most, v.o.Say, v.http.Log = v.most<<30, a.say, func(r httpserver.Request) { a.say("%s", r) }
	h, err := relay.Handler(ctx, from, v.o)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", v.listen)
	if err != nil {
		return cli.WithHint(fmt.Errorf("relay: %w", err), "--listen takes another address, as in 127.0.0.1:5001")
	}
	served := map[string]string{"address": l.Addr().String(), "registry": name}
	shown := a.show(served, func() { _, err = fmt.Fprintln(a.out, l.Addr()) })
	if err := cmp.Or(shown, err); err != nil {
		return err
	}
	a.say("relaying %s on %s, end with Ctrl-C", name, l.Addr())
	return httpserver.Serve(ctx, l, h, v.http)
}
