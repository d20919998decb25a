// SPDX-License-Identifier: Apache-2.0

// Command demo does caisson's main job before your eyes: it makes a site, builds
// and signs a layer, publishes overlays, boots virtual machines by PXE, looks
// inside them, changes the layer, goes back, shows what is refused, and moves a fleet in waves. Every
// command that it runs is printed as a user would type it.
//
//	make demo
//	make demo KEEP=1
//	make demo REGISTRY=127.0.0.1:5000/demo
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/vm"
)

// second is the step that runs beside all the others.
const second = "7  a fleet of three: a rollout in waves, and one that halts"

func main() {
	registry := flag.String("registry", "", "registry server as host:port/prefix instead of a directory that caisson serves")
	keep := flag.Bool("keep", false, "keep the working directory, and leave the fleet's page up until interrupted")
	only := flag.Bool("waves", false, "only the fleet that moves in waves, without machines")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "caisson-demo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	d := &demo{dir: dir, keep: *keep, only: *only, begun: time.Now()}
	err = d.run(ctx, *registry)
	d.stopAll()
	d.table()
	if *keep && err == nil {
		fmt.Printf("the page stays at %s until you interrupt this\n", d.second.page)
		<-ctx.Done()
	}
	if *keep || err != nil {
		fmt.Println("the working directory is", dir)
	} else {
		_ = os.RemoveAll(dir) // a temporary directory
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	dir      string
	fleet    *vm.Fleet
	begun    time.Time
	keep     bool
	only     bool // the last step
	machines []*machine.Machine
	second   *waves
	steps    []timed
}

type timed struct {
	name string
	took time.Duration
	ok   bool
}

func (d *demo) run(ctx context.Context, registry string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("building a layer takes root: run it as root")
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	d.fleet = &vm.Fleet{Dir: d.dir, Bin: bin, Registry: registry, Show: os.Stdout}
	d.second = begin(ctx, filepath.Join(d.dir, "waves"), bin)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"1  a site and its keys", d.site},
		{"2  build the system layer", d.build},
		{"3  publish one signed overlay a node", d.publish},
		{"4  boot a diskless node by PXE, look inside", d.boot},
		{"6b a running node refuses what is not for it", d.refuseLive},
		{"5  another layer: build, publish, reboot", d.swap},
		{"6c a booting node refuses, waits; roll back by pin", d.pin},
		{"6a a node with a state disk keeps its last good overlay", d.lastGood},
		{second, d.waves},
	} {
		if d.only && step.name != second {
			continue
		}
		fmt.Printf("\n=== %s\n", step.name)
		begun := time.Now()
		err := step.do(ctx)
		took := time.Since(begun)
		if step.name == second { // it went on beside the others
			took = d.second.took
		}
		d.steps = append(d.steps, timed{step.name, took, err == nil})
		if err != nil {
			return fmt.Errorf("step %s: %w", step.name, err)
		}
	}
	return nil
}

// say explains what comes next.
func say(format string, args ...any) { fmt.Printf("\n# "+format+"\n", args...) }

func (d *demo) caisson(ctx context.Context, args ...string) error {
	out, err := d.fleet.Caisson(ctx, args...)
	fmt.Print(out)
	return err
}

// all runs commands one after the other.
func (d *demo) all(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		if err := d.caisson(ctx, strings.Fields(c)...); err != nil {
			return err
		}
	}
	return nil
}

// edit changes the site as an editor would, and says so.
func (d *demo) edit(from, to string) error {
	fmt.Printf("$ $EDITOR site.yaml      # %s\n", strings.TrimSpace(strings.ReplaceAll(to, "\n", " ")))
	return change(filepath.Join(d.dir, "site.yaml"), from, to)
}

// change replaces a text in a file, which must be there.
func change(name, from, to string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), from) {
		return fmt.Errorf("%s has no %q", name, from)
	}
	return os.WriteFile(name, []byte(strings.Replace(string(data), from, to, 1)), 0o644)
}

func (d *demo) stopAll() {
	for _, m := range d.machines {
		m.PowerCut()
	}
}

func (d *demo) table() {
	fmt.Printf("\n%-58s %8s\n", "step", "time")
	for _, s := range d.steps {
		mark := "ok"
		if !s.ok {
			mark = "FAILED"
		}
		fmt.Printf("%-58s %7.1fs %s\n", s.name, s.took.Seconds(), mark)
	}
	fmt.Printf("%-58s %7.1fs\n", "all", time.Since(d.begun).Seconds())
}
