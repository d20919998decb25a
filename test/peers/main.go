// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/test/peers/chart"
	"github.com/caisson-os/caisson/test/peers/debian"
	"github.com/caisson-os/caisson/test/peers/images"
	"github.com/caisson-os/caisson/test/peers/polls"
	"github.com/caisson-os/caisson/test/peers/updates"
)

func main() {
	runs := flag.Int("runs", 0, "run each peer `N` times; 5, and 2 of those that make images, where it is 0")
	out := flag.String("out", "docs/benchmark", "write what was measured below `DIR`")
	side := flag.String("side", "", "measure this `SIDE` alone: "+strings.Join(sideNames(), ", "))
	as := flag.String("host", "", "live in the root at `DIR`, in namespaces of its own; for this program alone")
	kill := flag.Duration("kill", 0, "kill what is applied there after `TIME`; 0 kills nothing")
	fetch := flag.Bool("fetch", false, "bring a layer into a store; for this program alone")
	read := flag.String("read", "", "read here and there below `DIR`; for this program alone")
	flag.Parse()
	var err error
	switch {
	case *fetch:
		err = updates.Fetch(flag.Args())
	case *read != "":
		err = updates.Read(*read)
	default:
		err = run(*runs, *out, *side, *as, *kill, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// sides are what peers are put beside each other for. Each is run so often where nothing
// else is said.
var sides = []struct {
	name string
	runs int
	run  func(runs int, out, work string, names []string) error
}{
	{"nodes", 5, nodes},
	{"images", 2, images.Run},
	{"updates", 5, updates.Run},
	{"formats", 3, updates.Formats},
	{"polls", 5, polls.Run},
}

// apart starts this program over with mounts of its own: they end with it, whatever ends it.
func apart() error {
	const done = "PEERS_APART=1"
	if slices.Contains(os.Environ(), done) {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	return syscall.Exec(unshare, append([]string{"unshare", "--mount", self}, os.Args[1:]...), append(os.Environ(), done))
}

func sideNames() (names []string) {
	for _, s := range sides {
		names = append(names, s.name)
	}
	return names
}

func run(runs int, out, side, as string, kill time.Duration, names []string) error {
	if as != "" {
		those, err := named(names)
		if err != nil {
			return err
		}
		l, err := live(those[0], as, all(), kill)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(l)
	}
	if side != "" && !slices.Contains(sideNames(), side) {
		return fmt.Errorf("no side is called %q: there are %s", side, strings.Join(sideNames(), ", "))
	}
	if side == "" && len(names) > 0 {
		return errors.New("peers are named for one side: -side")
	}
	if err := apart(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) // below the directory of temporary files
	if err := build(work); err != nil {
		return err
	}
	for _, s := range sides {
		if side != "" && s.name != side {
			continue
		}
		if err := s.run(cmp.Or(runs, s.runs), out, work, names); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// nodes measures those that configure hosts.
func nodes(runs int, out, work string, names []string) error {
	those, err := named(names)
	if err != nil {
		return err
	}
	lives, err := take(those, runs, work)
	if err != nil {
		return err
	}
	return chart.Write(out, "nodes", lives, chart.Peers(lives, life.who), shown(those, lives))
}

// named returns the peers of these names, all of them where there are none.
func named(names []string) ([]peer, error) {
	if len(names) == 0 {
		return peers, nil
	}
	var those []peer
	for _, name := range names {
		n := slices.IndexFunc(peers, func(p peer) bool { return p.name == name })
		if n < 0 {
			return nil, fmt.Errorf("no peer is called %q", name)
		}
		those = append(those, peers[n])
	}
	return those, nil
}

// kills is how often each peer is killed while it applies, at moments that divide its usual time.
const kills = 5

// take has all peers take turns, with programs of this checkout below work.
func take(those []peer, runs int, work string) ([]life, error) {
	tar, err := debian.Tar("trixie", "nodes", packages)
	if err != nil {
		return nil, err
	}
	var lives []life
	applied := map[string][]float64{}
	for n := range runs + kills {
		for _, p := range those {
			var after time.Duration // nothing is killed
			if n >= runs {
				after = time.Duration(chart.Median(applied[p.name]) * float64(n-runs+1) / (kills + 1) * float64(time.Second))
			}
			if p.most > 0 && (n >= p.most && n < runs || n >= runs+p.most) {
				continue
			}
			begun := time.Now()
			l, err := once(p, tar, filepath.Join(work, "root"), after)
			if err != nil {
				return nil, err
			}
			if l.Killed == nil {
				applied[p.name] = append(applied[p.name], l.Apply.Seconds)
			}
			fmt.Fprintf(os.Stderr, "run %d of %d: %s, %s\n", n+1, runs+kills, p.name, time.Since(begun).Round(time.Second))
			lives = append(lives, l)
		}
	}
	return lives, nil
}

// once unpacks a root into memory, and has one peer live there, or be killed.
func once(p peer, tar, at string, kill time.Duration) (l life, err error) {
	remove, err := debian.Unpack(tar, at, "4g")
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := p.write(all(), filepath.Join(at, "peer")); err != nil {
		return l, fmt.Errorf("%s: %w", p.name, err)
	}
	return host(p, at, kill)
}

// packages are what the root has beside the base.
const packages = "systemd,systemd-sysv,udev,dbus,iproute2,procps,kmod,ansible-core,ansible," +
	"puppet-agent,puppet-module-puppetlabs-mount-core,cfengine3,python3,cloud-init,ignition"
