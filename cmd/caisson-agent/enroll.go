// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/caisson-os/caisson/bootagent/program/enroll"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

func enrollHost(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "enroll")
	var s source
	s.register(f)
	site := f.String("site", "", "`file` site.json with trusted keys and the registry, instead of --from, --fleet and --key")
	replace := f.Bool("replace", false, "leave the fleet that this host is enrolled in")
	if err := f.parse(a, args); err != nil {
		return err
	}
	b, err := s.bootstrap()
	switch {
	case err != nil:
		return err
	case b != nil && *site != "":
		return cli.Usage("give one of them", "--site and --from exclude each other")
	case b == nil && *site == "":
		return cli.Usage("for example: caisson-agent enroll --from registry.example:5000/metal-a --fleet metal-a --key operator.pub", "enroll needs --from, --fleet and --key, or --site")
	case b == nil:
		if b, err = a.readSite(*site); err != nil {
			return err
		}
	}
	if s.node != "" {
		b.Node = s.node
	}
	found, err := enroll.Host(ctx, a.options("enroll"), *b, *replace)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"node": found.Overlay.Node, "fleet": found.Overlay.Fleet, "generation": found.Generation.Generation}, func() {
		cli.Printf(a.out, "enrolled as node %s of fleet %s; its generation %d is applied by 'caisson-agent apply', once, or 'caisson-agent run', from now on\n",
			found.Overlay.Node, found.Overlay.Fleet, found.Generation.Generation)
	})
}

func (a *app) readSite(name string) (*spec.Bootstrap, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	b, notes, err := spec.DecodeBootstrap(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	for _, note := range notes {
		a.say("%s: %s", name, note)
	}
	return &b, nil
}
