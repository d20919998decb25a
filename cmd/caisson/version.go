// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
)

// version is set by the Makefile.
var version = "development"

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.show(map[string]string{"version": version, "go": runtime.Version()}, func() {
				cli.Printf(a.out, "caisson %s (%s)\n", version, runtime.Version())
			})
		},
	}
}
