// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/spec"
)

func (a *app) verifyCommand() *cobra.Command {
	var nodes []string
	var images bool
	var look looking
	c := verb("verify", func(c *cobra.Command, args []string) error {
		if err := look.trustsSomebody(args[0]); err != nil {
			return err
		}
		p, err := look.publisher(a, args[0], nil)
		if err != nil {
			return err
		}
		if keys := len(look.whom.keys); keys > 1 && look.whom.threshold == 0 {
			a.say("no --threshold: all %d keys must have signed", keys)
		}
		p.Images = images
		report, err := p.Verify(c.Context(), *p.Trust, nodes)
		if err != nil {
			return err
		}
		if err = a.print(report); err == nil && !report.OK() {
			return cli.Refused("verification failed: nodes would refuse part of it, or it is not what fleet:index says")
		}
		return err
	})
	f := c.Flags()
	look.flags(a, f)
	f.StringArrayVar(&look.whom.keys, "key", nil, "the same as --trust")
	f.StringArrayVar(&nodes, "node", nil, "verify this node only; may be repeated")
	f.BoolVar(&images, "images", false, "read the images of the layers, too")
	return c
}

// quoteFlags are the flags of verify-quote.
type quoteFlags struct {
	node, nonce   string
	like, loaders []string
	look          looking
}

func (a *app) verifyQuoteCommand() *cobra.Command {
	var f quoteFlags
	c := verb("verify-quote", func(c *cobra.Command, args []string) error { return a.verifyQuote(c.Context(), args[0], args[1], f) })
	c.Flags().StringVar(&f.node, "node", "", "the node that the machine is to be")
	c.Flags().StringVar(&f.nonce, "nonce", "", "`HEX` that the machine was asked with")
	c.Flags().StringArrayVar(&f.like, "like", nil, "`FILE` with a quote of this machine that was accepted; may be repeated")
	c.Flags().StringArrayVar(&f.loaders, "loader", nil, "`FILE` of a loader, as 'caisson image --out FILE.efi' writes it; may be repeated")
	requireFlags(c, "node", "nonce")
	f.look.flags(a, c.Flags())
	return c
}

func (a *app) verifyQuote(ctx context.Context, file, ref string, f quoteFlags) error {
	nonce, err := hex.DecodeString(f.nonce)
	if err != nil || len(nonce) < spec.MinNonce {
		return cli.Usage("give the same as to 'caisson-agent quote'",
			"--nonce %.80q: %d bytes or more in hexadecimal are wanted", f.nonce, spec.MinNonce)
	}
	q, err := readQuote(file)
	if err != nil {
		return err
	}
	known := attest.Known{Node: f.node}
	for _, name := range f.loaders {
		image, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("--loader: %w", err)
		}
		stub, programs, err := media.Measure(image)
		if err != nil {
			return cli.WithHint(fmt.Errorf("--loader %s: %w", name, err), "'caisson image SITE --out FILE.efi' writes one")
		}
		known.AddLoader(name, stub, programs...)
	}
	for _, name := range f.like {
		accepted, err := readQuote(name)
		if err != nil {
			return fmt.Errorf("--like: %w", err)
		}
		one, err := known.Accept(accepted)
		if err != nil {
			return fmt.Errorf("--like %s: %w", name, err)
		}
		known.Like = append(known.Like, one)
	}
	fleet, err := f.look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	if known.Roots, err = attest.Given(ctx, fleet, f.node); err != nil {
		return err
	}
	v := attest.Verify(q, nonce, known)
	if err := a.print(v); err != nil {
		return err
	}
	if !v.Attested {
		return cli.Refused("%s is not attested: %s", v.Node, v.Why)
	}
	return nil
}

// readQuote reads a quote, or says why it is none.
func readQuote(name string) (*spec.Quote, error) {
	data, err := ownfiles.ReadPublic(name, spec.MaxQuote)
	if err != nil {
		return nil, err
	}
	q, err := spec.DecodeQuote(data)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("%s: %w", name, err), "'caisson-agent quote --nonce HEX -o json' prints one")
	}
	return q, nil
}
