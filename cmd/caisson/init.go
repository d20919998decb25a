// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/sign/keyfile"
	"github.com/caisson-os/caisson/spec/site/document"
)

//go:embed scaffold.yaml
var scaffold string

// keyNames are the three purposes of design's trust section: who signs layers,
// who signs overlays, and who attests how a layer was built.
var keyNames = []string{"release", "operator", "attestation"}

// initialised is what init -o json prints.
type initialised struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
}

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Start a site: a site.yaml to edit, and keys",
		Long: "Start a site: a site.yaml to edit, and keys.\n\n" +
			"Nothing that exists is overwritten. The private keys are not encrypted: keep keys/*.key out of\n" +
			"version control (.gitignore says so) and off the nodes.",
		Example: "  caisson init metal-a",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			made, err := newSite(dir)
			if err != nil {
				return err
			}
			if a.json() {
				return cli.JSON(a.out, initialised{dir, made})
			}
			for _, name := range made {
				cli.Printf(a.out, "%s\n", filepath.Join(dir, name))
			}
			a.say("edit %s, then run: caisson validate %s", filepath.Join(dir, "site.yaml"), filepath.Join(dir, "site.yaml"))
			return nil
		},
	}
}

// scaffoldFile is a file of a new site, made in the order of the list.
type scaffoldFile struct {
	name string
	data []byte
	mode os.FileMode
}

// newSite makes all files of a site in dir, or none, and returns their names.
func newSite(dir string) (made []string, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	plan := []scaffoldFile{
		{"site.yaml", []byte(strings.ReplaceAll(scaffold, "SITE-NAME", fleetNameOf(filepath.Base(abs)))), 0o644},
		{".gitignore", []byte("# private keys, and what caisson builds\n/keys/*.key\n/out/\n/boot/\n"), 0o644},
	}
	for _, name := range []string{"site", "values"} {
		schema, err := document.Schema(name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, scaffoldFile{".schema/" + name + ".schema.json", schema, 0o644})
	}
	for _, name := range keyNames {
		key, err := sign.Generate()
		if err != nil {
			return nil, fmt.Errorf("make key %s: %w", name, err)
		}
		private, err := keyfile.Marshal(key, nil)
		if err != nil {
			return nil, fmt.Errorf("make key %s: %w", name, err)
		}
		plan = append(plan,
			scaffoldFile{"keys/" + name + ".key", private, 0o600},
			scaffoldFile{"keys/" + name + ".pub", sign.VerifierOf(key).PEM(), 0o644})
	}
	for _, f := range plan {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = fs.ErrExist
			}
			return nil, cli.WithHint(fmt.Errorf("make %s: %w", filepath.Join(dir, f.name), err), "name an empty directory: init overwrites nothing")
		}
	}
	for _, f := range plan {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f.name)), 0o755); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			for _, name := range made {
				_ = os.Remove(filepath.Join(dir, name)) // err says what failed
			}
			made = nil
		}
	}()
	if err := os.Chmod(filepath.Join(dir, "keys"), 0o700); err != nil {
		return nil, err
	}
	for _, f := range plan {
		if err := durable.WriteFile(filepath.Join(dir, f.name), f.data, f.mode); err != nil {
			return made, fmt.Errorf("write %s: %w", f.name, err)
		}
		made = append(made, f.name)
	}
	return made, nil
}

var notFleetName = regexp.MustCompile(`[^a-z0-9]+`)

// fleetNameOf makes a fleet's name of a directory's.
func fleetNameOf(dir string) string {
	name := strings.Trim(notFleetName.ReplaceAllString(strings.ToLower(dir), "-"), "-")
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-")
	}
	if name == "" {
		return "my-fleet"
	}
	return name
}
