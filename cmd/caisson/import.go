// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/convert"
)

func (a *app) importCommand() *cobra.Command {
	var kind string
	var strict bool
	c := &cobra.Command{
		Use:   "import FILE…",
		Short: "Convert host configuration files to site YAML",
		Long: "Convert host configuration files to site YAML: sysctl.d, limits.d, fstab, .link, what ethtool -k prints,\n" +
			"Ignition, butane and cloud-config. What a file is shows in its name or its content; --as says it.\n" +
			"The result goes to standard output; what was not taken, and why, to standard error. Files count in\n" +
			"the order given: a later line wins. -o json has every line in \"coverage\".",
		Example: "  caisson import /etc/sysctl.d/*.conf /etc/fstab >conf.yaml\n  ethtool -k eth0 >eth0.txt && caisson import --as ethtool eth0.txt",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			if kind != "" && !slices.Contains(convert.Kinds, kind) {
				return cli.Usage("one of "+strings.Join(convert.Kinds, ", "), "--as: unknown kind %q", kind)
			}
			var files []convert.File
			for _, name := range names {
				data, err := readHostFile(name)
				if err != nil {
					return err
				}
				files = append(files, convert.File{Name: name, Kind: kind, Data: data})
			}
			r, err := convert.Import(files)
			if err != nil {
				return err
			}
			if a.json() {
				err = cli.JSON(a.out, r)
			} else {
				err = r.WriteYAML(a.out)
			}
			if err != nil {
				return err
			}
			for _, l := range r.Coverage {
				if l.Why != "" {
					a.say("%s:%d: %s: %s", l.File, l.Line, l.Text, l.Why)
				}
			}
			missed := r.Missed()
			a.say("%s, %d taken as they are", count(len(r.Coverage), "line"), len(r.Coverage)-missed)
			if strict && missed > 0 {
				return cli.ErrInvalid
			}
			return nil
		},
	}
	c.Flags().StringVar(&kind, "as", "", "what the files are: "+strings.Join(convert.Kinds, ", "))
	c.Flags().BoolVar(&strict, "strict", false, "fail when a line was not taken as it is")
	return c
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
