// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/ready"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/document"
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
	c := &cobra.Command{
		Use:   "validate FILE…",
		Short: "List all problems of a site, with positions",
		Long: "List all problems of a site, with positions.\n\n" +
			"FILE is a Site, Divingbell values, an Armada chart or an inventory; several are merged in\n" +
			"this order, - is standard input. What later verbs refuse is refused here as far as the files at hand\n" +
			"show it: keys, locks, the publisher's memory and files that the site names. Nothing is asked of a network.\n" +
			"Warnings do not fail unless --strict is given. Exit code 2: there are errors.\n\n" +
			"--for-cluster lists what in the named files cannot be in objects of Kubernetes: what kubectl would send\n" +
			"as another value without quotes, and what reads files where the site is published.\n" + fromClusterHelp,
		Example: "  caisson validate site.yaml\n  caisson validate --strict divingbell-values.yaml nodes.json\n  caisson validate --from-cluster --namespace metal-a",
		Args:    from.args,
		RunE: func(c *cobra.Command, names []string) error {
			s, found, err := from.parse(c.Context(), time.Now(), names)
			if err != nil {
				return err
			}
			if forCluster {
				checkForCluster(names, found)
			}
			if s != nil {
				ready.Check(s, ready.Beside{Lock: lockName(besideName(names)), Memory: memoryName(besideName(names))}, found)
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
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "warnings are errors")
	c.Flags().BoolVar(&forCluster, "for-cluster", false, "also list what cannot be in objects of Kubernetes")
	from.flags(c.Flags())
	return c
}

func (a *app) schemaCommand() *cobra.Command {
	var crd bool
	c := &cobra.Command{
		Use:   "schema " + strings.Join(document.SchemaNames(), "|"),
		Short: "Print the JSON Schema of a document, for editors",
		Long: "Print the JSON Schema of a document, for editors.\n\n" +
			"A YAML file names its schema in a comment: # yaml-language-server: $schema=.schema/site.schema.json.\n" +
			"'caisson init' writes both.\n\n" +
			"--crd prints the CustomResourceDefinitions of Kubernetes that are made from the same shapes, all of them.\n" +
			"The API server takes them by 'kubectl apply --server-side': they are larger than what client-side apply keeps.",
		Example: "  caisson schema site >.schema/site.schema.json\n  caisson schema --crd | kubectl apply --server-side -f -",
		Args: func(c *cobra.Command, args []string) error {
			if crd {
				return cobra.NoArgs(c, args)
			}
			return cobra.ExactArgs(1)(c, args)
		},
		ValidArgs: document.SchemaNames(),
		RunE: func(_ *cobra.Command, args []string) error {
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
		},
	}
	c.Flags().BoolVar(&crd, "crd", false, "print the CustomResourceDefinitions of a cluster")
	return c
}
