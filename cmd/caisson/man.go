// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// written is what man -o json prints.
type written struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
}

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write manual pages, one for each verb",
		Example: "  caisson man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			header := &doc.GenManHeader{Section: "1", Source: "caisson " + version, Manual: "caisson"}
			c.Root().DisableAutoGenTag = true
			if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			entries, err := os.ReadDir(args[0])
			if err != nil {
				return err
			}
			w := written{Dir: args[0], Files: []string{}}
			for _, e := range entries {
				w.Files = append(w.Files, e.Name())
			}
			return a.show(w, func() { a.say("%d pages in %s", len(w.Files), w.Dir) })
		},
	}
}
