// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	runs := flag.Int("runs", 5, "run each peer `N` times")
	out := flag.String("out", "docs/benchmark", "write what was measured below `DIR`")
	as := flag.String("host", "", "live in the root at `DIR`, in namespaces of its own; for this program alone")
	flag.Parse()
	if err := run(*runs, *out, *as, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(runs int, out, as string, names []string) error {
	those, err := named(names)
	if err != nil {
		return err
	}
	if as != "" {
		l, err := live(those[0], as, all())
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(l)
	}
	lives, err := take(those, runs)
	if err != nil {
		return err
	}
	return errors.Join(writeRaw(filepath.Join(out, "nodes.json"), lives), os.WriteFile(filepath.Join(out, "nodes.svg"), draw(those, lives), 0o644), table(os.Stdout, those, lives))
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

// take has all peers take turns.
func take(those []peer, runs int) ([]life, error) {
	work, err := os.MkdirTemp("", "peers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work) // below the directory of temporary files
	if err := build(filepath.Join(work, "bin")); err != nil {
		return nil, err
	}
	tar, err := root()
	if err != nil {
		return nil, err
	}
	var lives []life
	for n := range runs {
		for _, p := range those {
			begun := time.Now()
			l, err := once(p, tar, filepath.Join(work, "root"))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "run %d of %d: %s, %s\n", n+1, runs, p.name, time.Since(begun).Round(time.Second))
			lives = append(lives, l)
		}
	}
	return lives, nil
}

// once unpacks a root into memory, and has one peer live there.
func once(p peer, tar, at string) (l life, err error) {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return l, err
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=4g,mode=0755", "peers", at).CombinedOutput(); err != nil {
		return l, fmt.Errorf("mount: %w: %s", err, out)
	}
	defer func() {
		if out, e := exec.Command("umount", at).CombinedOutput(); e != nil {
			err = errors.Join(err, fmt.Errorf("umount: %w: %s", e, out))
		}
	}()
	if out, err := exec.Command("tar", "--extract", "--numeric-owner", "--file", tar, "--directory", at).CombinedOutput(); err != nil {
		return l, fmt.Errorf("tar: %w: %s", err, out)
	}
	if err := p.write(all(), filepath.Join(at, "peer")); err != nil {
		return l, fmt.Errorf("%s: %w", p.name, err)
	}
	return host(p, at)
}

// packages are what the root has beside the base.
const packages = "systemd,systemd-sysv,udev,dbus,iproute2,procps,kmod,ansible-core,ansible,puppet-agent,puppet-module-puppetlabs-mount-core,cfengine3,python3"

// root returns a root of Debian 13 with all peers, made where it is missing.
func root() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	name := filepath.Join(cache, "caisson", "peers-trixie.tar")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	made := name + ".new.tar"
	defer os.Remove(made) // it has its name, or is half
	if out, err := exec.Command("mmdebstrap", "--quiet", "--variant=apt", "--include="+packages, "trixie", made).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mmdebstrap: %w: %s", err, out)
	}
	return name, os.Rename(made, name)
}

// writeRaw writes what was measured, with what it was measured on.
func writeRaw(name string, lives []life) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{"date": time.Now().UTC().Format(time.DateOnly), "kernel": string(kernel), "settings": all().count(), "runs": lives}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}
