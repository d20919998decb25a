// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/document"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema " + strings.Join(document.SchemaNames(), "|"),
		Short: "Print the JSON Schema of a document, for editors",
		Long: "Print the JSON Schema of a document, for editors.\n\n" +
			"A YAML file names its schema in a comment: # yaml-language-server: $schema=.schema/site.schema.json.\n" +
			"'caisson init' writes both.",
		Example:   "  caisson schema site >.schema/site.schema.json",
		Args:      cobra.ExactArgs(1),
		ValidArgs: document.SchemaNames(),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := document.Schema(args[0])
			if err != nil {
				return cli.Usage("one of "+strings.Join(document.SchemaNames(), ", "), "%w", err)
			}
			_, err = a.out.Write(text)
			return err
		},
	}
}
