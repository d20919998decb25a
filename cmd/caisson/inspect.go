// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
)

func (a *app) inspectCommand() *cobra.Command {
	var look looking
	var released []string
	var packages, profiles, sbom bool
	var node string
	c := verb("inspect", func(c *cobra.Command, args []string) error {
		if node != "" {
			if sbom || packages || profiles {
				return cli.Usage("--sbom, --packages and --profiles apply to layers", "give either --node or --sbom, --packages and --profiles")
			}
			if len(released) > 0 {
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
		var by []sign.Verifier
		if len(released) == 0 {
			a.say(noKey)
		} else if by, err = keys.Publics(released); err != nil {
			return err
		}
		if sbom {
			return a.printSBOM(c.Context(), layers, by)
		}
		var out []release.Inspected
		var unsigned error // the first one
		for _, l := range layers {
			one, err := release.Inspect(c.Context(), l, by)
			if err != nil {
				return err
			}
			out = append(out, one)
			if unsigned == nil {
				unsigned = one.Refused
			}
		}
		return cmp.Or(a.show(out, func() {
			for i, one := range out {
				if i > 0 {
					cli.Printf(a.out, "\n")
				}
				one.Write(a.out, packages, profiles)
			}
		}), unsigned)
	})
	c.Args = takes("LAYER")
	c.Flags().BoolVar(&packages, "packages", false, "list the packages")
	c.Flags().BoolVar(&profiles, "profiles", false, "list the AppArmor profiles")
	c.Flags().StringArrayVar(&released, "key", nil, releaseKeyHelp)
	c.Flags().BoolVar(&sbom, "sbom", false, "print the SPDX document of the layer")
	c.Flags().StringVar(&node, "node", "", "show what this node has")
	look.flags(a, c.Flags())
	return c
}

// printSBOM prints the one SBOM of a layer; a version with variants has several.
func (a *app) printSBOM(ctx context.Context, layers []release.Layer, by []sign.Verifier) error {
	if len(layers) != 1 {
		return cli.Usage("REF@sha256:… names one; 'caisson inspect' lists them", "there are %s", plain.Count(len(layers), "layer"))
	}
	if len(by) > 0 {
		if err := layers[0].Verify(ctx, by); err != nil {
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

// inspectNode prints what a fleet has for a node, verified.
func (a *app) inspectNode(ctx context.Context, look *looking, ref, node string) error {
	fleet, err := look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	found, err := fleet.Inspect(ctx, node)
	if err != nil {
		return err
	}
	shown := a.show(found, func() { err = found.Write(a.out) })
	return cmp.Or(shown, err)
}
