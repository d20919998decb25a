// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site"
)

// written is the output of man -o json.
type written struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
}

func (a *app) manCommand() *cobra.Command {
	return verb("man", func(c *cobra.Command, args []string) error {
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
	})
}

// version is set by the Makefile.
var version = "development"

func (a *app) versionCommand() *cobra.Command {
	return verb("version", func(*cobra.Command, []string) error {
		return a.show(map[string]string{"version": version, "go": runtime.Version()}, func() {
			cli.Printf(a.out, "caisson %s (%s)\n", version, runtime.Version())
		})
	})
}

// complete adds what a shell can offer for flags that many verbs have. A flag
// that a verb lacks is left out; nothing that goes wrong is said, because a shell
// has no place to show it.
func complete(c *cobra.Command) {
	offer(c, "output", func(*cobra.Command, []string) []string { return []string{"text", "json"} })
	offer(c, "node", nodeNames)
	offer(c, "layer", func(_ *cobra.Command, args []string) []string { return tags(args, oci.RepoLayer) })
}

func offer(c *cobra.Command, flag string, values func(*cobra.Command, []string) []string) {
	if c.Flag(flag) == nil {
		return
	}
	complete := func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		fits := slices.DeleteFunc(values(c, args), func(s string) bool { return !strings.HasPrefix(s, typed) })
		return fits, cobra.ShellCompDirectiveNoFileComp
	}
	_ = c.RegisterFlagCompletionFunc(flag, complete) // an error says that the flag has one already
}

// nodeNames are those of the site files among the arguments, else of the
// registry that they name.
func nodeNames(_ *cobra.Command, args []string) []string {
	if s, found := site.Parse(hostFiles{}, args...); found.Err() == nil && s != nil {
		return s.Fleet().Names()
	}
	return slices.DeleteFunc(tags(args, oci.RepoNode), func(tag string) bool {
		return strings.HasPrefix(tag, "mac-") || strings.HasPrefix(tag, "uuid-") || strings.HasPrefix(tag, "keep-")
	})
}

// tags lists a repository of the first argument that is a layout or a registry.
func tags(args []string, repo string) []string {
	for _, ref := range args {
		parsed, err := oci.ParseRef(ref)
		if err != nil || !parsed.IsLayout() && !strings.Contains(ref, "/") {
			continue
		}
		r, err := (&access{}).existing(ref)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		list, err := r.Tags(ctx, repo)
		if cancel(); err == nil {
			return list
		}
	}
	return nil
}
