// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/netboot"
)

func (a *app) netbootServeCommand() *cobra.Command {
	var httpAddr, tftpAddr string
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
			return netboot.Serve(c.Context(), root, httpAddr, tftpAddr, a.say)
		},
	}
	c.Flags().StringVar(&httpAddr, "http", ":8080", "address for HTTP")
	c.Flags().StringVar(&tftpAddr, "tftp", ":69", "address for TFTP")
	return c
}
