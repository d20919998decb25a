// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/netboot"
	"github.com/caisson-os/caisson/netboot/tftp"
)

func (a *app) netbootServeCommand() *cobra.Command {
	var o netboot.Options
	c := &cobra.Command{
		Use:   "serve DIR",
		Short: "Serve a netboot directory by HTTP and TFTP, read-only",
		Long: "Serve a netboot directory by HTTP and TFTP, read-only. TFTP gives boot.ipxe (and everything\n" +
			"else) to firmware that knows nothing better; an empty address turns a server off.",
		Example: "  caisson netboot serve boot",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
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
		},
	}
	c.Flags().StringVar(&o.HTTP, "http", ":8080", "address for HTTP")
	c.Flags().StringVar(&o.TFTP, "tftp", ":69", "address for TFTP")
	c.Flags().IntVar(&o.Transfers, "transfers", tftp.UsualTransfers, "`N` transfers by TFTP at once, 4 of them to one address")
	limitFlags(c.Flags(), &o.Limits)
	return c
}
