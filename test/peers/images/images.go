// SPDX-License-Identifier: Apache-2.0

// Package images puts `caisson build` beside mkosi, buildah and mmdebstrap with mksquashfs.
//
// Each makes an image of one system: Debian 13 with a kernel, what a node of caisson always has,
// 40 packages, and 20 users with keys. It is made from nothing, again with nothing changed,
// with one more user, with one more package, and from nothing once more, which has to be
// equal to the first.
package images

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/test/peers/chart"
	"github.com/caisson-os/caisson/test/peers/debian"
)

// tools are what the root has beside the base.
const tools = "mkosi,systemd,systemd-repart,udev,dosfstools,mtools,bubblewrap,buildah,netavark,crun,mmdebstrap,squashfs-tools," +
	"casync,rauc,ostree,zstd,rsync,docker-registry,erofs-utils,ca-certificates,apt-utils,curl," +
	"e2fsprogs,debian-archive-keyring,uidmap,iproute2,gpg,openssl"

// Root returns a tar of Debian 13 with the tools that make and distribute images.
func Root() (string, error) { return debian.Tar("trixie", "tools", tools) }

// system is what every peer has to make.
type system struct {
	base     []string // packages that a node of caisson always has; caisson is not asked for them
	packages []string
	users    int
}

// node is what a node of caisson always has. Ubuntu alone has one of them.
var node = slices.Concat(base.Include, slices.DeleteFunc(base.Recommended(), func(name string) bool { return name == "systemd-hwe-hwdb" }),
	[]string{"linux-image-cloud-amd64"})

var named = strings.Fields(`bash-completion bind9-dnsutils bridge-utils chrony conntrack cryptsetup-bin curl dmidecode ebtables file
	gdisk htop iotop ipset iputils-ping jq less lldpd lsof lvm2 mdadm mtr-tiny ncurses-term netcat-openbsd nfs-common nftables nvme-cli
	parted pciutils psmisc python3-minimal rsync smartmontools strace sysstat tcpdump tmux tree vim-tiny wget`)

// Named returns 40 packages that servers have.
func Named() []string { return named }

// step is one of what each peer does, one after another.
type step struct {
	name string
	made system
	anew bool // nothing is left of the steps before
}

// stepsOf returns the steps for a system.
func stepsOf(s system) []step {
	user, one := s, s
	user.users++
	one.packages = slices.Concat([]string{"unzip"}, s.packages)
	one.users = user.users
	return []step{{"from nothing", s, true}, {"nothing new", s, false}, {"one more user", user, false}, {"one more package", one, false},
		{"from nothing again", s, true}}
}

// steps are those that are measured.
var steps = stepsOf(system{node, named, 20})

// life is one run of one peer.
type life struct {
	Peer    string                 `json:"peer"`
	Version string                 `json:"version"`
	Steps   map[string]debian.Took `json:"steps"`
	Bytes   int64                  `json:"bytes"` // of what was made from nothing
	Equal   bool                   `json:"equal"` // both from nothing are
}

// Run measures the peers of these names, all where there are none, and writes what it
// measured below out. work has caisson and caisson-agent.
func Run(runs int, out, work string, names []string) error {
	tar, err := Root()
	if err != nil {
		return err
	}
	archive, err := debian.NewArchive(work)
	if err != nil {
		return err
	}
	defer archive.Close() // nobody asks any more
	var lives []life
	for n := range runs {
		for _, p := range peers {
			if len(names) > 0 && !slices.Contains(names, p.name) {
				continue
			}
			begun := time.Now()
			l, err := live(p, steps, tar, work, archive)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Fprintf(os.Stderr, "run %d of %d: %s, %s\n", n+1, runs, p.name, time.Since(begun).Round(time.Second))
			lives = append(lives, l)
		}
	}
	return chart.Write(out, "images", lives, chart.Peers(lives, life.who), rows(lives))
}

// live has one peer make all images in a root of its own.
func live(p peer, steps []step, tar, work string, archive *debian.Archive) (l life, err error) {
	root := filepath.Join(work, "root")
	remove, err := debian.Unpack(tar, root, "10g")
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	dir := filepath.Join(root, "peer")
	for _, name := range []string{"caisson", "caisson-agent"} {
		data, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			return l, err
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), data, 0o755)); err != nil {
			return l, err
		}
	}
	version, _, err := debian.Run(root, archive, p.version)
	if err != nil {
		return l, err
	}
	l = life{Peer: p.name, Version: strings.TrimSpace(string(version)), Steps: map[string]debian.Took{}}
	if p.ready != "" {
		if _, _, err := debian.Run(root, archive, p.ready); err != nil {
			return l, err
		}
	}
	var digests [][]byte
	for _, s := range steps {
		if s.anew {
			if _, _, err := debian.Run(root, archive, p.forget); err != nil {
				return l, err
			}
		}
		if err := p.write(s.made, dir); err != nil {
			return l, err
		}
		if _, l.Steps[s.name], err = debian.Run(root, archive, p.build); err != nil {
			return l, err
		}
		if !s.anew {
			continue
		}
		sum, _, err := debian.Run(root, archive, "cd /peer && sha256sum "+p.result)
		if err != nil {
			return l, err
		}
		digests = append(digests, sum)
		if l.Bytes, err = size(dir, p.files); err != nil {
			return l, err
		}
	}
	l.Equal = bytes.Equal(digests[0], digests[1])
	return l, nil
}

// size returns how many bytes the files of a pattern have.
func size(dir, pattern string) (bytes int64, err error) {
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return 0, err
		}
		bytes += info.Size()
	}
	return bytes, nil
}

// who is the peer of a run.
func (l life) who() chart.Peer { return chart.Peer{Name: l.Peer, Version: l.Version} }

// rows are what is shown.
func rows(lives []life) []chart.Row {
	var kinds []chart.Kind[life]
	for _, s := range steps {
		other := func(l life) string {
			if s.anew && s.name != steps[0].name && !l.Equal {
				return "other bytes"
			}
			return ""
		}
		kinds = append(kinds, chart.Kind[life]{Name: s.name, Unit: "s", Of: func(l life) float64 { return l.Steps[s.name].Seconds }, Note: other},
			chart.Kind[life]{Name: s.name + ", processor", Unit: "s", Of: func(l life) float64 { return l.Steps[s.name].Processor }})
	}
	kinds = append(kinds, chart.Kind[life]{Name: "size", Unit: "MB", Of: func(l life) float64 { return float64(l.Bytes) / 1e6 }})
	return chart.Rows(lives, life.who, kinds)
}
