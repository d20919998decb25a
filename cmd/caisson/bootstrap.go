// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/netboot"
	"github.com/caisson-os/caisson/spec"
)

// bootstrapped is what bootstrap -o json prints where it writes a file; else it prints what
// would be in it.
type bootstrapped struct {
	File string `json:"file"`
}

func (a *app) bootstrapCommand() *cobra.Command {
	var f nodesAsk
	var reach access
	var out string
	c := &cobra.Command{
		Use:   "bootstrap FILE…",
		Short: "Write site.json, by which a host that caisson does not boot is enrolled",
		Long: "Write site.json, by which a host that caisson does not boot is enrolled: whom it trusts and which registry\n" +
			"it asks. Of a site with root keys it has the newest version of the keys, so the host follows the chain.\n" +
			"It holds no secret; bring it to hosts by a way that you trust.",
		Example: "  caisson bootstrap site.yaml --out site.json\n  caisson-agent enroll --site site.json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			s, err := a.loadSite(names...)
			if err != nil {
				return err
			}
			o, err := reach.options(f.ask)
			if err != nil {
				return err
			}
			b, err := f.anchor(s, o.CAs)
			if err != nil {
				return err
			}
			data, err := spec.Encode(netboot.ForHost(b))
			if err != nil {
				return err
			}
			if out == "" {
				_, err = a.out.Write(append(data, '\n'))
				return err
			}
			if err := durable.WriteFile(out, data, 0o644); err != nil {
				return fmt.Errorf("write what hosts trust: %w", err)
			}
			if a.json() {
				return cli.JSON(a.out, bootstrapped{out})
			}
			cli.Printf(a.out, "%s\n", out)
			a.say("on the host: caisson-agent enroll --site %s", out)
			return nil
		},
	}
	f.flags(c.Flags())
	c.Flags().StringArrayVar(&reach.caFiles, "ca", nil, "trust only the PEM certificate authorities in `FILE` for the registry")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write; standard output when empty")
	return c
}
