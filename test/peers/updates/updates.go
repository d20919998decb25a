// SPDX-License-Identifier: Apache-2.0

// Package updates puts what a node of caisson fetches of a new layer beside casync,
// `zstd --patch-from`, rsync, static deltas of ostree, and layers that are fetched whole.
//
// The update is a real one: Debian 12 as its last point release, and the same with what its
// security archive has since. Both are made by `caisson build` as for a release; the others get the
// trees of these layers.
package updates

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/test/peers/chart"
	"github.com/caisson-os/caisson/test/peers/debian"
	"github.com/caisson-os/caisson/test/peers/images"
)

const fleet = "metal-a"

// life is one update by one peer.
type life struct {
	Peer    string      `json:"peer"`
	Version string      `json:"version"`
	Publish debian.Took `json:"publish"` // what the publisher did beside building, once for all runs
	Fetch   debian.Took `json:"fetch"`
	Bytes   int64       `json:"bytes"` // through the node's connections, both ways
}

// Run measures the peers of these names, all where there are none, and writes what it
// measured below out. work has caisson, caisson-agent and peers.
func Run(runs int, out, work string, names []string) (err error) {
	h, remove, err := newHost(work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := h.prepare(work); err != nil {
		return err
	}
	lives, err := h.all(runs, names)
	if err != nil {
		return err
	}
	return chart.Write(out, "updates", lives, chart.Peers(lives, life.who), rows(lives))
}

// host has the publisher and the node of all peers.
type host struct {
	root, dir string
	old, new  string // digests of layers
	server    *server
	took      debian.Took
	printed   []byte
}

// newHost returns a host in memory, and what removes it.
func newHost(work string) (h *host, remove func() error, err error) {
	tar, err := images.Root()
	if err != nil {
		return nil, nil, err
	}
	root := filepath.Join(work, "root")
	remove, err = debian.Unpack(tar, root, "14g")
	return &host{root: root, dir: filepath.Join(root, "peer")}, remove, err
}

// run runs a command in the host's directory.
func (h *host) run(command string) (printed []byte, err error) {
	head := "cd /peer; OLD=" + h.old + " NEW=" + h.new
	if h.server != nil {
		head += " URL=http://" + h.server.files.Addr().String() + " RSYNC=rsync://" + h.server.daemon.Addr().String()
	}
	h.printed, h.took, err = debian.Run(h.root, nil, head+"; "+command)
	return h.printed, err
}

// prepare makes both layers, and their trees, archives and file systems.
func (h *host) prepare(work string) error {
	for _, name := range []string{"caisson", "caisson-agent", "peers"} {
		data, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(h.dir, "www"), 0o755), os.WriteFile(filepath.Join(h.dir, name), data,
			0o755)); err != nil {
			return err
		}
	}
	archive, err := debian.NewArchive(work)
	if err != nil {
		return err
	}
	defer archive.Close() // nobody asks any more
	if _, err := h.run("mkdir init && ./caisson init init && mv init/keys ."); err != nil {
		return err
	}
	mirror, err := debian.Mirror()
	if err != nil {
		return err
	}
	for _, one := range []struct {
		name, security string
		digest         *string
	}{{"old", "", &h.old}, {"new", mirror + "-security", &h.new}} {
		text, err := site(mirror, one.security)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(h.dir, one.name+".yaml"), text, 0o644); err != nil {
			return err
		}
		printed, _, err := debian.Run(h.root, archive, "cd /peer && ./caisson build "+one.name+".yaml --to oci:registry --key "+
			"keys/release.key --attest-key= --cache cache --version "+one.name)
		if err != nil {
			return err
		}
		if *one.digest, err = digestIn(printed); err != nil {
			return err
		}
		if err := h.unpack(one.name, *one.digest); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(h.dir, "cache"))
}

// unpack makes the tree of a layer, and its images.
func (h *host) unpack(name, digest string) error {
	data, err := os.ReadFile(filepath.Join(h.dir, "registry/blobs/sha256", strings.TrimPrefix(digest, "sha256:")))
	if err != nil {
		return err
	}
	var manifest struct {
		Layers []struct{ Digest, MediaType string }
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return err
	}
	command := "set -e; "
	for _, l := range manifest.Layers {
		if strings.Contains(l.MediaType, "squashfs") {
			command += "unsquashfs -q -n -f -d " + name + " registry/blobs/sha256/" + strings.TrimPrefix(l.Digest, "sha256:") + " >/dev/null; "
		}
	}
	// Marks of what a layer above takes away are no files.
	if _, err = h.run(command + "find " + name + " -type c -delete"); err != nil {
		return err
	}
	return h.images(name)
}

// images makes an archive and a file system of a tree.
func (h *host) images(name string) error {
	_, err := h.run("set -e; tar --sort=name --numeric-owner -cf " + name + ".tar " + name + "; " +
		"mke2fs -q -t ext4 -O ^has_journal -U 0e9a6fe0-68f6-408c-bbeb-136054d20445 -E hash_seed=0e9a6fe0-68f6-408c-bbeb-136054d20445 -d " +
		name + " " + name + ".ext4 1000M")
	return err
}

// site is what both states are built from.
func site(mirror, security string) ([]byte, error) {
	type m = map[string]any
	var packages []m
	for _, p := range images.Named() {
		packages = append(packages, m{"name": p})
	}
	from := m{"suite": "bookworm", "mirror": mirror}
	if security != "" {
		from["security"] = security
	}
	return json.Marshal(m{"apiVersion": "caisson.dev/v1alpha1", "kind": "Site", "metadata": m{"name": fleet}, "registry": "oci:registry",
		"layer": m{"base": m{"debian": from}, "kernel": m{"package": "linux-image-cloud-amd64"}},
		"nodes": []m{{"name": "host", "match": m{"macs": []string{"52:54:00:00:00:0a"}}}}, "conf": m{"apt": m{"packages": packages}}})
}

// daemon is where rsync's listens.
const daemon = "127.0.0.1:8730"

// rsync starts a daemon that serves the new tree.
func (h *host) rsync() (stop func(), err error) {
	conf := "uid = 0\ngid = 0\nuse chroot = no\n[new]\npath = /peer/new\nread only = yes\n"
	if err := os.WriteFile(filepath.Join(h.dir, "rsyncd.conf"), []byte(conf), 0o644); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(daemon, ":")
	return debian.Start(h.root, "rsync --daemon --no-detach --address=127.0.0.1 --port="+port+" --config=/peer/rsyncd.conf")
}

// all has all peers take turns.
func (h *host) all(runs int, names []string) (lives []life, err error) {
	stop, err := h.rsync()
	if err != nil {
		return nil, err
	}
	defer stop()
	if h.server, err = serve(h.dir, daemon); err != nil {
		return nil, err
	}
	defer h.server.Close()
	published := map[string]life{}
	for n := range runs {
		for _, p := range peers {
			if len(names) > 0 && !slices.Contains(names, p.name) {
				continue
			}
			begun := time.Now()
			l, there := published[p.name]
			if !there {
				if l, err = h.publish(p); err != nil {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
				published[p.name] = l
			}
			if err := h.update(p, &l); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Fprintf(os.Stderr, "run %d of %d: %s, %s\n", n+1, runs, p.name, time.Since(begun).Round(time.Second))
			lives = append(lives, l)
		}
	}
	return lives, nil
}

func (h *host) publish(p peer) (l life, err error) {
	version, err := h.run(p.version)
	if err != nil {
		return l, err
	}
	l = life{Peer: p.name, Version: strings.TrimSpace(string(version))}
	if p.publish != "" {
		if _, err := h.run(p.publish); err != nil {
			return l, err
		}
		l.Publish = h.took
	}
	if p.node != "" {
		_, err = h.run(p.node)
	}
	return l, err
}

func (h *host) update(p peer, l *life) error {
	if _, err := h.run(p.before); err != nil {
		return err
	}
	before := h.server.bytes.Load()
	if _, err := h.run(p.fetch); err != nil {
		return err
	}
	l.Fetch, l.Bytes = h.took, h.server.bytes.Load()-before
	_, err := h.run(p.check)
	return err
}

// who is the peer of a run.
func (l life) who() chart.Peer { return chart.Peer{Name: l.Peer, Version: l.Version} }

// rows are what is shown.
func rows(lives []life) []chart.Row {
	return chart.Rows(lives, life.who, []chart.Kind[life]{
		{Name: "through the network", Unit: "MB", Of: func(l life) float64 { return float64(l.Bytes) / 1e6 }},
		{Name: "the node's clock", Unit: "s", Of: func(l life) float64 { return l.Fetch.Seconds }},
		{Name: "the node's processor", Unit: "s", Of: func(l life) float64 { return l.Fetch.Processor }},
		{Name: "the publisher's processor", Unit: "s", Of: func(l life) float64 { return l.Publish.Processor }},
	})
}
