// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/document"
)

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
