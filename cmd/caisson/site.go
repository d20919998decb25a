// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/convert"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
)

// validation is the output of validate -o json.
type validation struct {
	Valid    bool             `json:"valid"`
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
	Problems []report.Problem `json:"problems"`
}

func (a *app) validateCommand() *cobra.Command {
	var strict, forCluster bool
	var from fromCluster
	c := verb("validate", func(c *cobra.Command, names []string) error {
		s, found, err := from.parse(c.Context(), time.Now(), names)
		if err != nil {
			return err
		}
		if forCluster {
			checkForCluster(names, found)
		}
		if s != nil {
			preview.Check(s, preview.Beside{Lock: lockName(besideName(names)), Memory: memoryName(besideName(names))}, found)
		}
		found.Sort()
		if strict {
			found.Strict()
		}
		errors, warnings := found.Count(report.Error), found.Count(report.Warning)
		v := validation{Valid: errors == 0, Errors: errors, Warnings: warnings, Problems: append([]report.Problem{}, found.Problems...)}
		err = a.show(v, func() {
			if a.quiet {
				found.DropNotes()
			}
			found.Write(a.err)
			summary := fmt.Sprintf("%s, %s", plain.Count(errors, "error"), plain.Count(warnings, "warning"))
			if errors == 0 {
				summary = fmt.Sprintf("valid: %s, %s, %s", s.Name(), plain.Count(len(s.Nodes()), "node"), summary)
			}
			cli.Printf(a.out, "%s\n", summary)
		})
		if err == nil && errors > 0 {
			return cli.ErrInvalid
		}
		return err
	})
	c.Flags().BoolVar(&strict, "strict", false, "warnings are errors")
	c.Flags().BoolVar(&forCluster, "for-cluster", false, "also list what cannot be in objects of Kubernetes")
	from.flags(c, 0)
	return c
}

func (a *app) schemaCommand() *cobra.Command {
	var crd bool
	c := verb("schema", func(_ *cobra.Command, args []string) error {
		if crd {
			text, err := cluster.Definitions()
			if err == nil {
				_, err = a.out.Write(text)
			}
			return err
		}
		text, err := document.Schema(args[0])
		if err != nil {
			return cli.Usage("one of "+strings.Join(document.SchemaNames(), ", "), "%w", err)
		}
		_, err = a.out.Write(text)
		return err
	})
	c.Use += " " + strings.Join(document.SchemaNames(), "|")
	c.Args = func(c *cobra.Command, args []string) error {
		if crd {
			return cobra.NoArgs(c, args)
		}
		return takes("NAME")(c, args)
	}
	c.ValidArgs = document.SchemaNames()
	c.Flags().BoolVar(&crd, "crd", false, "print the CustomResourceDefinitions of a cluster")
	return c
}

func (a *app) explainCommand() *cobra.Command {
	var node, other, key string
	var labels, conditions []string
	c := verb("explain", func(_ *cobra.Command, names []string) error {
		set, err := parseLabels(labels)
		if err != nil {
			return err
		}
		switch all := key != "" || len(conditions) > 0; {
		case node == "" && !all:
			return cli.Usage("name the node to explain", "--node is missing")
		case all && node+other != "" || key != "" && len(conditions) > 0 || len(labels) > 0 && node == "" || other != "" && len(labels) > 0:
			return cli.Usage("--node with --label or --against, or --key, or --where", "these do not go together")
		}
		s, err := a.loadNamed(names...)
		switch {
		case err != nil:
			return err
		case key != "":
			return a.print(s.Uses(key))
		case len(conditions) > 0:
			return a.where(s, conditions)
		case other != "":
			return a.against(s, node, other)
		}
		e, err := s.Explain(node, set)
		if err == nil && !e.Known && len(set) == 0 && len(s.Nodes()) > 0 {
			a.say("warning: the site has no node %q: this is what it would get; %s", node, inventory.DidYouMean(node, s.Nodes()))
		}
		return a.print(e, err)
	})
	c.Flags().StringVar(&node, "node", "", "the node's name")
	c.Flags().StringVar(&node, "host", "", "the same as --node")
	c.Flags().StringArrayVar(&labels, "label", nil, "a label KEY=VALUE it has, over the site's; may be repeated")
	c.Flags().StringVar(&other, "against", "", "show in what the node differs from the node with this `NAME`")
	c.Flags().StringVar(&key, "key", "", "list the values of the setting KIND/`KEY` on all nodes")
	c.Flags().StringArrayVar(&conditions, "where", nil,
		"list the nodes that have the setting KIND/KEY, or `KIND/KEY=VALUE`; several must all hold")
	return c
}

func parseLabels(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, cli.Usage("write --label KEY=VALUE", "%q is not a label", l)
		}
		out[k] = v
	}
	return out, nil
}

func (a *app) windowsCommand() *cobra.Command {
	var from, until, node string
	c := verb("windows", func(_ *cobra.Command, names []string) error {
		span, err := calendar.ParseSpan(from, until, time.Now())
		if err != nil {
			return misasked(err)
		}
		s, err := a.loadNamed(names...)
		if err != nil {
			return err
		}
		windows, err := s.Windows(node)
		if err != nil {
			return err
		}
		o := calendar.OpeningsOf(windows, span)
		return a.show(o, func() {
			if len(o.Windows) == 0 {
				a.say("there is no MaintenanceWindow")
			}
			_ = o.Write(a.out) // the verb ends with what its output could not take
		})
	})
	c.Flags().StringVar(&node, "node", "", "only windows that this node waits for")
	c.Flags().StringVar(&from, "from", "", "from when on; now when absent")
	c.Flags().StringVar(&until, "until", "", "until when; the first of the fourth month after when absent")
	return c
}

func (a *app) operationsCommand() *cobra.Command {
	var node string
	c := verb("operations", func(_ *cobra.Command, names []string) error {
		if node == "" {
			return cli.Usage("name the node", "--node is missing")
		}
		s, err := a.loadNamed(names...)
		if err != nil {
			return err
		}
		o, err := s.Overlay(node, "")
		if err != nil {
			return err
		}
		m := spec.Maintenance{Operations: []spec.Operation{}}
		if o.Maintenance != nil {
			m = *o.Maintenance
		}
		return a.show(m, func() {
			if len(m.Operations)+len(m.Realtime) == 0 {
				a.say("%s has no operations", node)
			}
			explain.WriteOperations(a.out, m)
		})
	})
	c.Flags().StringVar(&node, "node", "", "the node's name")
	return c
}

// against prints in what a node differs from another one.
func (a *app) against(s *site.Site, node, other string) error {
	for _, name := range []string{node, other} {
		if _, err := s.Fleet().Node(name); err != nil {
			return err
		}
	}
	found, err := s.Against(node, other)
	if err != nil {
		return err
	}
	return cmp.Or(a.show(found, func() {
		found.Write(a.out, node, other)
		if len(found) == 0 {
			a.say("%s and %s have the same settings", node, other)
		}
	}), drift(len(found) > 0))
}

// where prints the nodes that meet every condition.
func (a *app) where(s *site.Site, conditions []string) error {
	all, none, err := s.Where(conditions)
	if err != nil {
		return err
	}
	if none != "" {
		a.say("%s", none)
	}
	return a.show(all, func() {
		for _, name := range all {
			cli.Printf(a.out, "%s\n", name)
		}
	})
}

func (a *app) initCommand() *cobra.Command {
	answers := document.UsualAnswers("")
	var nodes []string
	c := verb("init", func(c *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		for _, n := range nodes {
			answers.Nodes = append(answers.Nodes, document.ParseNodeAnswer(n))
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
		return a.show(written{dir, made}, func() {
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
func newSite(dir string, answers document.Answers) ([]string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	answers.Name = document.FleetName(filepath.Base(abs))
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
	made, err := policy.FirstKeys(answers.Name, now())
	if err != nil {
		return nil, err
	}
	names, err := durable.Make(dir, append(plan, made...))
	if errors.Is(err, fs.ErrExist) {
		err = cli.WithHint(err, "name an empty directory: init overwrites nothing")
	}
	return names, err
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
			found, err := convert.FilesAt(name, kind)
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
		r.Tell(a.say, a.sayDetail)
		if strict && r.Missed() > 0 {
			return cli.ErrInvalid
		}
		return nil
	})
	c.Flags().StringVar(&kind, "as", "", "what the files are: "+strings.Join(convert.Kinds, ", "))
	c.Flags().BoolVar(&strict, "strict", false, "fail when a line was not taken as it is")
	return c
}
