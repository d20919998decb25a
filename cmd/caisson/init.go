// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
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
			if err := ask(os.Stdin, a.err, &answers); err != nil {
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

// scaffoldFile is a file of a new site, made in the order of the list.
type scaffoldFile struct {
	name string
	data []byte
	mode os.FileMode
}

// newSite makes all files of a site in dir, or none, and returns their names.
func newSite(dir string, answers scaffold.Answers) (made []string, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	answers.Name = fleetNameOf(filepath.Base(abs))
	text, err := answers.Site()
	if err != nil {
		return nil, cli.Usage("caisson init --help names the flags", "%v", err)
	}
	plan := []scaffoldFile{
		{"site.yaml", []byte(text), 0o644},
		{".gitignore", []byte("# private keys, and what caisson builds\n/keys/*.key\n/out/\n/boot/\n"), 0o644},
	}
	for _, name := range []string{"site", "values"} {
		schema, err := document.Schema(name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, scaffoldFile{".schema/" + name + ".schema.json", schema, 0o644})
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
			scaffoldFile{"keys/" + name + ".key", private, 0o600},
			scaffoldFile{"keys/" + name + ".pub", sign.VerifierOf(key).PEM(), 0o644})
	}
	versions, err := firstKeys(answers.Name, pairs)
	if err != nil {
		return nil, err
	}
	plan = append(plan, scaffoldFile{"caisson.keys", versions, 0o644})
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

// firstKeys is version 1 of a new fleet's keys, as a file.
func firstKeys(fleet string, pairs map[string]*ecdsa.PrivateKey) ([]byte, error) {
	of := func(name string) spec.Role {
		return spec.Role{Keys: []string{string(sign.VerifierOf(pairs[name]).PEM())}, Threshold: 1}
	}
	candidate, err := publish.SignKeys(spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: fleet,
		Version: 1, At: now(), Reason: "a new site", Roles: spec.Roles{
			Root: of(site.Root), Operator: of(site.Operator), Release: of(site.Release), Attestation: of(site.Attestation)}},
		[]crypto.Signer{pairs[site.Root]})
	if err != nil {
		return nil, err
	}
	c, err := chain.First(candidate)
	if err != nil {
		return nil, err
	}
	return c.Marshal(), nil
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

// asks reports whether a person is there to answer.
func (a *app) asks() bool {
	f, isFile := a.err.(*os.File)
	return isFile && cli.IsTerminal(f) && cli.IsTerminal(os.Stdin) && !a.json()
}

// ask puts the questions of a new site. An empty line takes what is usual, and the
// end of the answers takes the rest of it.
func ask(in io.Reader, out io.Writer, a *scaffold.Answers) error {
	lines := bufio.NewScanner(in)
	question := func(text, usual string) string {
		fmt.Fprintf(out, "%s [%s]: ", text, usual)
		if lines.Scan() {
			if answer := strings.TrimSpace(lines.Text()); answer != "" {
				return answer
			}
		}
		return usual
	}
	switch kind := question("Are the nodes metal or virtual machines", "metal"); {
	case strings.HasPrefix("virtual machines", kind):
		a.Kernel = "linux-image-cloud-amd64"
	case kind != "metal":
		return cli.Usage("metal or virtual", "%q is neither metal nor virtual", kind)
	}
	a.Registry = question("Registry, HOST[:PORT]/REPOSITORY, or a directory, oci:DIR", a.Registry)
	node := scaffold.Node{Name: question("Name of the first node", scaffold.Example.Name)}
	if mac := question("MAC address of the interface that it boots from", "none"); mac != "none" {
		node.MAC = mac
	}
	a.Nodes = []scaffold.Node{node}
	return lines.Err()
}
