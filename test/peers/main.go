// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
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
	if err != nil && !errors.Is(err, errSaid) {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

// side is what peers are put beside each other for. Each is run so often where nothing else is said.
type side struct {
	name  string
	runs  int
	peers func() []string
	run   func(runs int, out, work string, names []string) error
}

var sides = []side{
	{"nodes", 5, peerNames, nodes},
	{"images", 2, images.Peers, images.Run},
	{"updates", 5, updates.Peers, updates.Run},
	{"formats", 3, updates.FormatNames, updates.Formats},
	{"polls", 5, polls.Peers, polls.Run},
}

// workIn names the environment variable that has the folder of a process that apart started.
const workIn = "PEERS_WORK"

// apart starts this program once more, with mounts of its own that end with it, and a folder that is
// removed then, whatever ends it.
func apart() (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }() // below the directory of temporary files
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--pid",
		"--fork", "--kill-child", "--mount-proc", self}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), workIn+"="+work)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); ctx.Err() != nil {
		return errors.New("interrupted")
	} else if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended { // it has said what is wrong
		return err
	} else if err != nil {
		return errSaid
	}
	return nil
}

// errSaid is returned where another process has said what is wrong.
var errSaid = errors.New("a run ended with an error")

func sideNames() (names []string) {
	for _, s := range sides {
		names = append(names, s.name)
	}
	return names
}

// asked refuses what cannot be run, before anything is made.
func asked(runs int, of string, names []string) error {
	n := slices.IndexFunc(sides, func(s side) bool { return s.name == of })
	switch {
	case runs < 0:
		return fmt.Errorf("-runs %d: it is a number from 1, or 0 for the usual one", runs)
	case of == "" && len(names) > 0:
		return errors.New("peers are named for one side: -side")
	case of != "" && n < 0:
		return fmt.Errorf("no side is called %q: there are %s", of, strings.Join(sideNames(), ", "))
	case os.Geteuid() != 0:
		return errors.New("peers live in namespaces and mounts of their own: run this as root")
	}
	for _, name := range names {
		if there := sides[n].peers(); !slices.Contains(there, name) {
			return fmt.Errorf("no peer of side %s is called %q: there are %s", of, name, strings.Join(there, ", "))
		}
	}
	return nil
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
	if err := asked(runs, side, names); err != nil {
		return err
	}
	work := os.Getenv(workIn)
	if work == "" {
		return apart()
	}
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

func peerNames() (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
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
