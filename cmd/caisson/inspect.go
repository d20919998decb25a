// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// inspected is one layer of inspect -o json, which prints a list.
type inspected struct {
	Digest    string             `json:"digest"`
	Bytes     int64              `json:"bytes"`
	Layer     spec.Layer         `json:"layer"`
	Referrers []release.Referrer `json:"referrers"`
	Released  *bool              `json:"released,omitempty"` // with --key

	refused error // why not Released
}

func (a *app) inspectCommand() *cobra.Command {
	var look looking
	var keys []string
	var packages, profiles, sbom bool
	var node string
	c := verb("inspect", func(c *cobra.Command, args []string) error {
		if node != "" {
			if sbom || packages || profiles {
				return cli.Usage("--sbom, --packages and --profiles apply to layers", "give either --node or --sbom, --packages and --profiles")
			}
			if len(keys) > 0 {
				return errReleaseKey
			}
			return a.inspectNode(c.Context(), &look, args[0], node)
		}
		if look.whom.said() {
			return errOperators
		}
		layers, err := openLayers(c.Context(), &look.reach, args[0])
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			a.say(noKey)
		}
		if sbom {
			return a.printSBOM(c.Context(), layers, keys)
		}
		var out []inspected
		var unsigned error // the first one
		for _, l := range layers {
			one, err := inspectOne(c.Context(), l, keys)
			if err != nil {
				return err
			}
			out = append(out, one)
			if unsigned == nil {
				unsigned = one.refused
			}
		}
		return cmp.Or(a.show(out, func() {
			for i, one := range out {
				if i > 0 {
					cli.Printf(a.out, "\n")
				}
				one.print(a.out, packages, profiles)
			}
		}), unsigned)
	})
	c.Args = takes("LAYER")
	c.Flags().BoolVar(&packages, "packages", false, "list the packages")
	c.Flags().BoolVar(&profiles, "profiles", false, "list the AppArmor profiles")
	c.Flags().StringArrayVar(&keys, "key", nil, releaseKeyHelp)
	c.Flags().BoolVar(&sbom, "sbom", false, "print the SPDX document of the layer")
	c.Flags().StringVar(&node, "node", "", "show what this node has")
	look.flags(a, c.Flags())
	return c
}

// printSBOM prints the one SBOM of a layer; a version with variants has several.
func (a *app) printSBOM(ctx context.Context, layers []release.Layer, names []string) error {
	if len(layers) != 1 {
		return cli.Usage("REF@sha256:… names one; 'caisson inspect' lists them", "there are %s", plain.Count(len(layers), "layer"))
	}
	if len(names) > 0 {
		one, err := inspectOne(ctx, layers[0], names)
		if err = errors.Join(err, one.refused); err != nil {
			return err
		}
	}
	text, err := layers[0].SBOM(ctx)
	if err != nil {
		return err
	}
	_, err = a.out.Write(append(bytes.TrimSpace(text), '\n'))
	return err
}

func inspectOne(ctx context.Context, l release.Layer, names []string) (inspected, error) {
	one := inspected{Digest: l.Digest, Bytes: l.Bytes(), Layer: l.Layer}
	var err error
	if one.Referrers, err = l.Referrers(ctx); err != nil {
		return one, err
	}
	if len(names) > 0 {
		pubs, err := keys.Publics(names)
		if err != nil {
			return one, err
		}
		one.refused = l.Verify(ctx, pubs)
		ok := one.refused == nil
		one.Released = &ok
	}
	return one, nil
}

func (i inspected) print(w io.Writer, packages, profiles bool) {
	l := i.Layer
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) { cli.Printf(t, "%s\t", key); cli.Printf(t, format+"\n", args...) }
	row("layer", "%s", i.Digest)
	row("fleet", "%s", l.Fleet)
	row("version", "%s, variant %s, %s, %s", l.Version, l.Variant, l.Arch, l.Created)
	row("size", "%.1f MB", float64(i.Bytes)/1e6)
	for _, image := range l.Images {
		row("image", "%s\t%s\t%s", image.Name, plain.Bytes(image.Size), image.Digest)
	}
	row("kernel", "%s\t%s\t%s", l.Kernel.Release, plain.Bytes(l.Kernel.Size), l.Kernel.Digest)
	row("initrd", "\t%s\t%s", plain.Bytes(l.Initrd.Size), l.Initrd.Digest)
	row("packages", "%d", len(l.Packages))
	if packages {
		for _, p := range l.Packages {
			row("", "%s\t%s\t%s", p.Name, p.Version, p.Arch)
		}
	}
	system := 0
	for _, acc := range l.Accounts {
		if accounts.IsSystem(acc) {
			system++
			continue
		}
		row("account", "%s\t%d\t%s", acc.Name, acc.UID, acc.State)
	}
	if system > 0 {
		row("accounts", "%d\tsystem users and groups whose numbers are kept", system)
	}
	modes := map[string]int{}
	for _, p := range l.AppArmor.Profiles {
		modes[p.Mode]++
	}
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		row("profiles", "%d\t%s", modes[mode], mode)
	}
	if profiles {
		for _, p := range l.AppArmor.Profiles {
			row("profile", "%s\t%s", p.Name, p.Mode)
		}
	}
	for _, r := range i.Referrers {
		row("attached", "%s\t%s", r.Type, r.Predicate)
	}
	if i.Released != nil {
		row("released", "%v", *i.Released)
	}
	_ = t.Flush() // the verb ends with what its output could not take
}

// inspectedNode is the output of inspect --node -o json.
type inspectedNode struct {
	Node    string         `json:"node"`
	Row     spec.Published `json:"row"` // of fleet:index
	Overlay *spec.Overlay  `json:"overlay"`
	RunsOn  []string       `json:"runsOn"` // other layers on which what is live of it may be applied, as signed
}

// inspectNode prints what a fleet has for a node, verified.
func (a *app) inspectNode(ctx context.Context, look *looking, ref, node string) error {
	fleet, err := look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	row, ok, err := fleet.Row(ctx, node)
	if err != nil {
		return err
	}
	if !ok {
		return cli.WithHint(fmt.Errorf("node %q is not published", node),
			"'caisson verify' lists those that are, 'caisson history --node' says when it was")
	}
	o, err := fleet.Overlay(ctx, node)
	if err != nil {
		return err
	}
	runsOn, err := fleet.RunsOn(ctx, node)
	if err != nil {
		return err
	}
	found := inspectedNode{node, row, o, append([]string{}, runsOn...)}
	shown := a.show(found, func() { err = found.print(a.out) })
	return cmp.Or(shown, err)
}

// print prints a table of what a node has, and its overlay.
func (n inspectedNode) print(w io.Writer) error {
	row, o := n.Row, n.Overlay
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(key, format string, args ...any) { cli.Printf(t, "%s\t", key); cli.Printf(t, format+"\n", args...) }
	line("node", "%s of fleet %s", n.Node, o.Fleet)
	line("generation", "%d, signed until %s", row.Generation, time.Unix(row.Expires, 0).UTC().Format(time.RFC3339))
	line("found as", "%s", strings.Join(append([]string{n.Node}, trust.AliasTags(row.Match.MACs, row.Match.UUIDs)...), " "))
	line("overlay", "%s", row.Overlay)
	if row.Layer != "" {
		line("layer", "%s, variant %s", row.Layer, o.Variant)
	}
	for _, layer := range n.RunsOn {
		line("runs on", "%s, until its own layer is booted", layer)
	}
	for _, s := range o.Services {
		line("service "+s.Name, "commit %s, image %s", s.Commit, s.Image.Digest)
	}
	if len(row.Holds) > 0 {
		line("held", "%s", hold.String(row.Holds))
	}
	if b := row.Before; b != nil {
		line("before", "%s of generation %d", strings.TrimSpace(b.Overlay+" "+b.Layer), b.Generation)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	cli.Printf(w, "\n")
	return cli.JSON(w, o)
}
