// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/scaffold"
)

// keyNames are who signs layers, who signs overlays, who attests how a layer was built, and
// who says which keys count.
var keyNames = []string{site.Release, site.Operator, site.Attestation, site.Root}

// initialised is the output of init -o json.
type initialised struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
}

func (a *app) initCommand() *cobra.Command {
	answers := scaffold.Usual("")
	var nodes []string
	c := verb("init", func(c *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		for _, n := range nodes {
			answers.Nodes = append(answers.Nodes, scaffold.ParseNode(n))
		}
		if c.LocalFlags().NFlag() == 0 && a.asks() {
			if err := answers.Ask(os.Stdin, a.err); err != nil {
				return err
			}
		}
		made, err := newSite(dir, answers)
		if err != nil {
			return err
		}
		return a.show(initialised{dir, made}, func() {
			for _, name := range made {
				cli.Printf(a.out, "%s\n", filepath.Join(dir, name))
			}
			a.say("the private keys in %s are not encrypted: who reads them signs for the fleet. With CAISSON_PASSPHRASE set "+
				"'caisson keys import %s NAME' makes a pair that is",
				filepath.Join(dir, "keys"), filepath.Join(dir, "keys", "operator.key"))
			a.say("take %s off this machine: it is needed to change keys, and for nothing else", filepath.Join(dir, "keys", "root.key"))
			a.say("edit %s, then run: caisson validate %s", filepath.Join(dir, "site.yaml"), filepath.Join(dir, "site.yaml"))
		})
	})
	c.Flags().StringVar(&answers.Registry, "registry", answers.Registry, "registry or layout of the site")
	c.Flags().StringVar(&answers.Kernel, "kernel", answers.Kernel, "PACKAGE of the kernel")
	c.Flags().StringVar(&answers.Suite, "suite", answers.Suite, "suite of Debian")
	c.Flags().StringArrayVar(&nodes, "node", nil, "NAME[=MAC] of a node; may be given again")
	return c
}

// newSite makes all files of a site in dir, or none, and returns their names.
func newSite(dir string, answers scaffold.Answers) (made []string, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	answers.Name = scaffold.FleetName(filepath.Base(abs))
	text, err := answers.Site()
	if err != nil {
		return nil, cli.Usage("caisson init --help names the flags", "%v", err)
	}
	plan := []durable.File{
		{Name: "site.yaml", Data: []byte(text), Mode: 0o644},
		{Name: ".gitignore", Data: []byte("# private keys, and what caisson builds\n/keys/*.key\n/out/\n/boot/\n"), Mode: 0o644},
	}
	for _, name := range []string{"site", "values"} {
		schema, err := document.Schema(name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, durable.File{Name: ".schema/" + name + ".schema.json", Data: schema, Mode: 0o644})
	}
	pairs := map[string]*ecdsa.PrivateKey{}
	for _, name := range keyNames {
		key, err := sign.Generate()
		if err != nil {
			return nil, fmt.Errorf("make key %s: %w", name, err)
		}
		pairs[name] = key
		private, err := keys.Marshal(key, nil)
		if err != nil {
			return nil, fmt.Errorf("make key %s: %w", name, err)
		}
		plan = append(plan,
			durable.File{Name: "keys/" + name + ".key", Data: private, Mode: 0o600},
			durable.File{Name: "keys/" + name + ".pub", Data: sign.VerifierOf(key).PEM(), Mode: 0o644})
	}
	versions, err := policy.First(answers.Name, pairs, now())
	if err != nil {
		return nil, err
	}
	plan = append(plan, durable.File{Name: "caisson.keys", Data: versions, Mode: 0o644})
	if made, err = durable.Make(dir, plan); errors.Is(err, fs.ErrExist) {
		err = cli.WithHint(err, "name an empty directory: init overwrites nothing")
	}
	return made, err
}

// agrees asks a person, who agrees by y or yes alone.
func (a *app) agrees(question string) bool {
	cli.Printf(a.err, "%s [y/N] ", question)
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	answer := strings.ToLower(strings.TrimSpace(lines.Text()))
	return answer == "y" || answer == "yes"
}

// asks reports whether a person is there to answer.
func (a *app) asks() bool {
	f, isFile := a.err.(*os.File)
	return isFile && cli.IsTerminal(f) && cli.IsTerminal(os.Stdin) && !a.json()
}
