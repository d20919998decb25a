// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/relay"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
)

// relaying are the flags of fleet relay.
type relaying struct {
	access
	listening
	o       relay.Options
	most    int64  // GiB
	unknown string // file of the machines that found no overlay
}

func (a *app) fleetRelayCommand() *cobra.Command {
	var v relaying
	c := verb("fleet relay", func(c *cobra.Command, args []string) error { return a.relay(c.Context(), &v, args[0]) })
	f := c.Flags()
	v.access.flags(a, f)
	f.StringVar(&v.o.Dir, "dir", "", "`DIR` where content is kept; nothing else may be in it")
	f.Int64Var(&v.most, "keep", 20, "`GiB` that the directory may take; what was not asked for longest leaves first")
	f.DurationVar(&v.o.Fresh, "fresh", 30*time.Second, "how long the answer for a tag counts")
	f.StringVar(&v.unknown, "unknown", "", "`FILE` that lists machines without an overlay, for 'caisson unknown FILE'")
	v.listening.flags(f, "127.0.0.1:5001")
	v.clientFlags(f)
	requireFlags(c, "dir")
	return c
}

func (a *app) relay(ctx context.Context, v *relaying, name string) error {
	ref, err := oci.ParseRef(name)
	switch {
	case err == nil && ref.IsLayout():
		return cli.Usage("'caisson serve' serves a directory", "%q is not a registry", name)
	case v.most < 1 || v.o.Fresh <= 0:
		return cli.Usage("", "--keep and --fresh are above 0")
	}
	if err := v.check(); err != nil {
		return err
	}
	from, err := v.access.open(name)
	if err != nil {
		return err
	}
	v.o.Most, v.o.Say, v.http.Log = v.most<<30, a.say, func(r httpserver.Request) { a.say("%s", r) }
	if v.unknown != "" {
		if v.http.Log, err = a.requestLog(v.unknown, v.unknown); err == nil {
			err = unknown.Make(v.unknown)
		}
		if err != nil {
			return err
		}
	}
	h, err := relay.Handler(ctx, from, v.o)
	if err != nil {
		return err
	}
	l, err := v.listening.open("relay", "127.0.0.1:5001")
	if err != nil {
		return err
	}
	if err := a.opened(l.Addr().String(), map[string]string{"registry": name}); err != nil {
		return err
	}
	a.say("relaying %s on %s, end with Ctrl-C", name, l.Addr())
	return httpserver.Serve(ctx, l, h, v.http)
}
