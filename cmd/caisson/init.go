// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/convert"
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

func (a *app) importCommand() *cobra.Command {
	var kind string
	var strict bool
	c := verb("import", func(_ *cobra.Command, names []string) error {
		if kind != "" && !slices.Contains(convert.Kinds, kind) {
			return cli.Usage("one of "+strings.Join(convert.Kinds, ", "), "--as: unknown kind %q", kind)
		}
		var files []convert.File
		for _, name := range names {
			found, err := hostFilesAt(name, kind)
			if err != nil {
				return err
			}
			files = append(files, found...)
		}
		r, err := convert.Import(files)
		if err != nil {
			return err
		}
		shown := a.show(r, func() { err = r.WriteYAML(a.out) })
		if err := cmp.Or(shown, err); err != nil {
			return err
		}
		unknown := 0
		for _, l := range r.Coverage {
			switch {
			case l.Why != "" && l.Line > 0:
				a.say("%s:%d: %s: %s", l.File, l.Line, l.Text, l.Why)
			case l.Why != "":
				unknown++
				a.sayDetail("%s: %s", l.File, l.Why)
			}
		}
		if unknown > 0 {
			a.say("%s left out; -v lists them", plain.Count(unknown, "file"))
		}
		missed := r.Missed()
		a.say("%s, %d taken as they are", plain.Count(len(r.Coverage), "line"), len(r.Coverage)-missed)
		if strict && missed > 0 {
			return cli.ErrInvalid
		}
		return nil
	})
	c.Flags().StringVar(&kind, "as", "", "what the files are: "+strings.Join(convert.Kinds, ", "))
	c.Flags().BoolVar(&strict, "strict", false, "fail when a line was not taken as it is")
	return c
}

// leftover is the name of a file that editors and package managers keep beside the
// one that counts, and the kernel's own list of mounts.
var leftover = regexp.MustCompile(`(/mtab|~|-|\.bak|\.old|\.orig|\.swp|\.(dpkg|ucf|rpm)\w*(-\w+)?)$`)

// hostFilesAt reads a file, or those below a directory.
func hostFilesAt(name, kind string) ([]convert.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		link, _ := os.Readlink(name) // "" where it is a file
		data, err := readHostFile(name)
		return []convert.File{{Name: name, Kind: kind, Data: data, Link: link}}, err
	}
	var out []convert.File
	err = filepath.WalkDir(name+"/", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || leftover.MatchString(at) {
			return err
		}
		f := convert.File{Name: at, Kind: kind, Found: true}
		f.Link, _ = os.Readlink(at) // "" where it is a file
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.Not, err = "a link to nowhere", nil
		case err != nil:
		case info.IsDir():
			f.Not = "a link to a directory: import that one, too"
		case !info.Mode().IsRegular() && f.Link != os.DevNull:
			f.Not = "not a file"
		case info.Size() > convert.MaxFile:
			f.Not = fmt.Sprintf("more than %d MiB", convert.MaxFile>>20)
		default:
			if f.Data, err = readHostFile(at); bytes.IndexByte(f.Data, 0) >= 0 {
				f.Not = "not text"
			}
		}
		out = append(out, f)
		return err
	})
	return out, err
}

func readHostFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, convert.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
