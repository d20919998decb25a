// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/relay"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media/netboot"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
)

func (a *app) serveCommand() *cobra.Command {
	var x listening
	c := verb("serve", func(c *cobra.Command, args []string) error {
		ref, err := oci.ParseRef(args[0])
		if err != nil || !ref.IsLayout() {
			return cli.Usage("as in oci:./out", "%q is not an OCI layout", args[0])
		}
		if _, err := pull.Open(ref, pull.Options{}); err != nil {
			return cli.Usage("'caisson build' makes one with --to "+args[0]+", or 'caisson publish' for a site without a layer", "%w", err)
		}
		if err := x.check(); err != nil {
			return err
		}
		l, err := x.open("serve", "127.0.0.1:5001")
		if err != nil {
			return err
		}
		if err := a.opened(l.Addr().String(), map[string]string{"layout": ref.Layout}); err != nil {
			return err
		}
		a.say("serving %s on %s, end with Ctrl-C", ref, l.Addr())
		h, err := registry.Handler(ref.Layout)
		if err != nil {
			return err
		}
		if x.http.Log, err = a.requestLog(unknown.Name(ref.Layout), ref.String()); err != nil {
			return err
		}
		return httpserver.Serve(c.Context(), l, h, x.http)
	})
	x.flags(c.Flags(), "127.0.0.1:5000")
	x.clientFlags(c.Flags())
	return c
}

// listening are the flags of a verb that answers requests.
type listening struct {
	at   string
	http httpserver.Options
}

func (x *listening) flags(f *pflag.FlagSet, usual string) {
	f.StringVar(&x.at, "listen", usual, "address to listen on")
	f.StringVar(&x.http.CertFile, "tls-cert", "", "certificate `FILE` to serve TLS with")
	f.StringVar(&x.http.KeyFile, "tls-key", "", "private key `FILE` of the certificate, mode 0600")
	limitFlags(f, &x.http)
}

// clientFlags say who is answered.
func (x *listening) clientFlags(f *pflag.FlagSet) {
	f.StringVar(&x.http.ClientCA, "client-ca", "", "answer only clients whose certificate the authorities in `FILE` have signed")
	f.StringVar(&x.http.UsersFile, "users-file", "", "answer only clients that know a user:password line of `FILE`, mode 0600")
}

// check refuses files that cannot be served with, before anything is opened.
func (x *listening) check() error {
	if (x.http.CertFile == "") != (x.http.KeyFile == "") {
		return cli.Usage("", "TLS needs both --tls-cert and --tls-key")
	}
	return x.http.Check()
}

// open listens, for the verb that an error names; another is an address that may be free.
func (x *listening) open(verb, another string) (net.Listener, error) {
	l, err := net.Listen("tcp", x.at)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("%s: %w", verb, err), "--listen takes another address, as in "+another)
	}
	return l, nil
}

// opened prints the address of a server, which programs wait for, and with -o json what it serves.
func (a *app) opened(address string, served map[string]string) (err error) {
	served["address"] = address
	return cmp.Or(a.show(served, func() { _, err = fmt.Fprintln(a.out, address) }), err)
}

func (a *app) netbootServeCommand() *cobra.Command {
	var o netboot.Options
	c := verb("netboot serve", func(c *cobra.Command, names []string) error {
		root, err := os.OpenRoot(names[0])
		if err != nil {
			return cli.Usage("'caisson netboot' writes it, with --out "+names[0], "netboot directory: %w", err)
		}
		defer root.Close() // only read
		if _, err := root.Stat("boot.ipxe"); err != nil {
			return cli.Usage("'caisson netboot' writes it, with --out "+names[0], "%s is not a netboot directory: no boot.ipxe in it", names[0])
		}
		if err := o.Limits.Check(); err != nil {
			return cli.Usage("", "%w", err)
		}
		o.Say = a.say
		return netboot.Serve(c.Context(), root, o)
	})
	c.Flags().StringVar(&o.HTTP, "http", ":8080", "address for HTTP")
	c.Flags().StringVar(&o.TFTP, "tftp", ":69", "address for TFTP")
	c.Flags().IntVar(&o.Transfers, "transfers", netboot.UsualTransfers, "`N` transfers by TFTP at once, 4 of them to one address")
	limitFlags(c.Flags(), &o.Limits)
	return c
}

// limitFlags bound what clients may take of a server.
func limitFlags(f *pflag.FlagSet, o *httpserver.Options) {
	f.IntVar(&o.Conns, "connections", 0, fmt.Sprintf("`N` connections at once; 0 is %d, or what 'ulimit -n' leaves. At "+
		"the limit the one that waits longest for a request ends", httpserver.UsualConns))
	f.IntVar(&o.PerClient, "connections-per-address", 0, fmt.Sprintf("of these `N` from one address; 0 is %d", httpserver.UsualPerClient))
	f.DurationVar(&o.Idle, "idle", httpserver.UsualIdle, "how long a connection may wait for its next request")
}

func (a *app) unknownCommand() *cobra.Command {
	return verb("unknown", func(_ *cobra.Command, args []string) error {
		name, err := unknownList(args[0])
		if err != nil {
			return err
		}
		machines, err := unknown.Read(name)
		if err != nil {
			return err
		}
		list := unknown.Rows(machines)
		return a.show(list, func() {
			for _, s := range list {
				cli.Printf(a.out, "%s\t# from %s, last %s\n", s.Node, s.From, s.Last.UTC().Format(time.RFC3339))
			}
			a.say("%s", plain.Count(len(list), "unknown machine"))
		})
	})
}

// unknownList returns the file beside a layout in which serve lists machines, or one of a relay.
func unknownList(layout string) (string, error) {
	if info, err := os.Stat(layout); err == nil && info.Mode().IsRegular() {
		return layout, nil
	}
	ref, err := oci.ParseRef(layout)
	if err != nil || !ref.IsLayout() {
		return "", cli.Usage("'caisson serve' keeps the list beside the layout that it serves, as in oci:./out; "+
			"'caisson fleet relay --unknown FILE' in that file", "%q is not an OCI layout", layout)
	}
	_, err = (&access{}).existing(layout)
	return unknown.Name(ref.Layout), err
}

// requestLog returns what is done with each request: it is said, and a file keeps who found no
// overlay. Of is by what 'caisson unknown' finds the file.
func (a *app) requestLog(file, of string) (func(httpserver.Request), error) {
	list, err := unknown.Open(file, func(m unknown.Machine) {
		a.say("unknown machine at %s: %s ('caisson unknown %s' lists them)", m.From, m.Node(), of)
	})
	if err != nil {
		return nil, cli.WithHint(err, "the list is a help only: remove the file")
	}
	var once sync.Once
	return func(r httpserver.Request) {
		a.say("%s", r)
		host, _, err := net.SplitHostPort(r.Remote)
		if err != nil {
			return // not an address of a network
		}
		switch r.Status {
		case http.StatusOK, http.StatusNotModified, http.StatusNotFound:
			if err := list.Answered(host, r.Agent, r.Path, r.Status != http.StatusNotFound, r.Time); err != nil {
				once.Do(func() { a.say("warning: %v", err) })
			}
		}
	}, nil
}

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
