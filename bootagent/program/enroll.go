// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/takeover"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// ReadBootstrap completes what an operator says of whom a host asks and trusts, by what files have.
func ReadBootstrap(b spec.Bootstrap, keys, epochKeys, cas []string) (*spec.Bootstrap, error) {
	if dir, ok := strings.CutPrefix(b.Registry, "oci:"); ok && dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		b.Registry = "oci:" + abs
	}
	ref, err := oci.ParseRef(b.Registry)
	if err != nil {
		return nil, err
	}
	b.APIVersion, b.Kind, b.PlainHTTP = spec.APIVersion, spec.KindBootstrap, b.PlainHTTP || ref.Loopback()
	for to, names := range map[*[]string][]string{&b.Keys: keys, &b.EpochKeys: epochKeys, &b.CAs: cas} {
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			*to = append(*to, string(data))
		}
	}
	return &b, nil
}

// EnrollHost makes a host a node of a fleet: it asks the registry for the host's overlay, verifies
// it, and only then writes down whom the host trusts from now on. Nothing else is changed.
// b.Node is the host's name in the fleet, "" for its host name. A host leaves its fleet for
// another with replace.
func EnrollHost(ctx context.Context, o session.Options, b spec.Bootstrap, replace bool) (*track.Found, error) {
	n := &session.Session{Options: o, Folder: state.View(filepath.Join(o.Root, paths.State))}
	switch boot, err := record.Load(n.Options.Root); {
	case err == nil && boot.Mode != spec.ModeAttached:
		return nil, fmt.Errorf("caisson booted this node: its loader says whom it trusts")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	var err error
	if n.Boot, err = n.Attached(); err != nil {
		return nil, err
	}
	n.Owner = record.New(n.Folder, n.Boot, n.Path(paths.RunBoot))
	before, err := n.ReadBootstrap()
	if before == nil && !errors.Is(err, session.ErrNotEnrolled) && !replace {
		return nil, err
	}
	if before != nil && before.Fleet != b.Fleet && !replace {
		return nil, fmt.Errorf("this host is enrolled in fleet %q: run restore --all, then enroll with --replace", before.Fleet)
	}
	if b.Node == "" && before != nil && before.Fleet == b.Fleet {
		b.Node = before.Node
	}
	if b.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		b.Node = cmp.Or(o.Name, strings.ToLower(host))
	}
	b.APIVersion, b.Kind = spec.APIVersion, spec.KindBootstrap
	n.Options.Name = b.Node
	// What another fleet left in the state says nothing here.
	unknown := state.View(n.Folder.Path("none"))
	id := n.Identity(&b)
	source, err := o.Source(b, n.Way(&state.State{}, id))
	if err != nil {
		return nil, err
	}
	f := &track.Tracker{Source: source, Bootstrap: b, Identity: id, Folder: unknown, Build: o.Build, Say: o.Say}
	found, err := f.Look(ctx)
	if err != nil {
		return nil, err
	}
	data, err := spec.Encode(b)
	if err != nil {
		return nil, err
	}
	name := n.Path(paths.Bootstrap)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	if err := durable.WriteFile(name, data, 0o644); err != nil {
		return nil, fmt.Errorf("enroll: %w", err)
	}
	if err := announce(n); err != nil {
		return nil, err
	}
	n.Record("enrolled", events.With("fleet", b.Fleet), events.With("node", b.Node), events.With("registry", b.Registry))
	return found, nil
}

// announce says at enrollment what the first run will find.
func announce(n *session.Session) error {
	found, err := takeover.Look(n.Options.Root)
	if err != nil || found == nil {
		return err
	}
	n.Say("Divingbell configured this host: apply takes over %s", found.Summary())
	if active, is := errors.AsType[*takeover.ActiveError](takeover.Active(n.Path("/proc"))); is {
		n.Say("before that, %v: %s", active, active.Hint())
	}
	return nil
}
