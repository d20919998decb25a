// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/vm"
)

// patience is for one step of a machine without KVM.
const patience = 5 * time.Minute

func (d *demo) site(ctx context.Context) error {
	say("a new site has a site.yaml to edit and three pairs of keys")
	if err := d.caisson(ctx, "init", "."); err != nil {
		return err
	}
	say("the demo goes on with examples/quickstart/site.yaml, with a fresh SSH key in it")
	fmt.Println("$ cp examples/quickstart/site.yaml . && ssh-keygen -t ed25519 -f id_ed25519")
	if err := d.fleet.UseExample("examples/quickstart/site.yaml"); err != nil {
		return err
	}
	return d.all(ctx, "validate site.yaml", "explain site.yaml --node beta")
}

func (d *demo) build(ctx context.Context) error {
	say("a real apt in a real root tree: base, packages, accounts, policy and agent become images of one signed artifact")
	return d.caisson(ctx, append([]string{"build", "site.yaml", "--to", d.fleet.To(), "--key", "keys/release.key", "--fast"}, d.plain()...)...)
}

func (d *demo) publish(ctx context.Context) error {
	say("every node gets a document of literals, signed for it alone")
	var first []string
	if d.fleet.Registry != "" { // a registry is asked twice whether it has no fleet
		first = []string{"--new-fleet"}
	}
	if err := d.push(ctx, first...); err != nil {
		return err
	}
	say("the boot files of a loader: kernel, generic initrd, and a site.cpio with the keys that it trusts")
	if err := d.fleet.Netboot(ctx); err != nil {
		return err
	}
	say("two small servers are all that a booting node needs")
	return d.fleet.Serve(ctx)
}

func (d *demo) push(ctx context.Context, more ...string) error {
	args := append([]string{"publish", "site.yaml", "--to", d.fleet.To(), "--key", "keys/operator.key"}, more...)
	return d.caisson(ctx, append(args, d.plain()...)...)
}

// plain is for a registry server on this machine.
func (d *demo) plain() []string {
	if d.fleet.Registry != "" {
		return []string{"--plain-http"}
	}
	return nil
}

func (d *demo) start(ctx context.Context, o machine.Options) (*machine.Machine, error) {
	say("machine %s: PXE firmware → TFTP script → HTTP kernel and initrd → caisson-agent as /init", o.Name)
	m, err := d.fleet.Boot(ctx, o)
	if err == nil {
		d.machines = append(d.machines, m)
	}
	return m, err
}

// follow prints what the loader says until a marker comes.
func follow(ctx context.Context, m *machine.Machine, from int, marker string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := m.Console.Wait(ctx, from, marker)
	for _, line := range strings.Split(m.Console.String()[from:], "\n") {
		if i := strings.Index(line, "caisson: "); i >= 0 {
			fmt.Println("  console |", line[i:])
		}
	}
	return err
}

func (d *demo) login(ctx context.Context, m *machine.Machine) (*machine.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := m.Login(ctx, "admin", d.fleet.Key)
	if err != nil {
		return nil, err
	}
	_, err = s.Run(ctx, vm.Settled)
	return s, err
}

func (d *demo) boot(ctx context.Context) error {
	m, err := d.start(ctx, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"})
	if err != nil {
		return err
	}
	if err := d.besides(ctx); err != nil {
		return err
	}
	if err := follow(ctx, m, 0, "caisson: entering the layer"); err != nil {
		return err
	}
	say("ssh admin@beta")
	s, err := d.login(ctx, m)
	if err != nil {
		return err
	}
	return look(ctx, s, vm.Quickstart("beta", "1"))
}

// look runs checks and prints them as a table.
func look(ctx context.Context, s *machine.Session, checks []vm.Check) error {
	seen, err := vm.Look(ctx, s, checks...)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range seen {
		mark := "ok"
		if c.Err != nil {
			mark = "NO"
			errs = append(errs, c.Err)
		}
		first, _, _ := strings.Cut(c.Got, "\n")
		fmt.Printf("  %-2s %-32s %s\n", mark, c.What, first)
	}
	return errors.Join(errs...)
}

// beta is the machine of the first boot.
func (d *demo) beta() *machine.Machine { return d.machines[0] }

func (d *demo) refuseLive(ctx context.Context) error {
	s, err := d.login(ctx, d.beta())
	if err != nil {
		return err
	}
	for _, attack := range []struct {
		say, code string
		do        func() error
	}{
		{"somebody who can push, without a key, alters beta's overlay", "subject", func() error { return d.fleet.Tamper(ctx, "beta", `"value":"1"`, `"value":"99"`) }},
		{"… and shows beta the overlay of alpha", "wrong-node", func() error { return d.fleet.Impersonate(ctx, "beta", "alpha") }},
	} {
		say("%s", attack.say)
		if err := attack.do(); err != nil {
			return err
		}
		if err := look(ctx, s, []vm.Check{
			{What: "sync refuses", Command: "sudo caisson-agent sync 2>&1 >/dev/null | grep refused", Want: "~refused (" + attack.code + ")"},
			{What: "and the node goes on as it was", Command: "cat /proc/sys/vm/swappiness", Want: "1"},
		}); err != nil {
			return err
		}
	}
	return d.push(ctx, "--all")
}

func (d *demo) layer(ctx context.Context, s *machine.Session) (string, error) {
	out, err := s.Run(ctx, "sudo caisson-agent status -o json")
	if err != nil {
		return "", err
	}
	var st spec.Status
	return st.Layer, errors.Join(json.Unmarshal([]byte(out), &st), nil)
}

var previous string // digest of the first layer

func (d *demo) swap(ctx context.Context) error {
	s, err := d.login(ctx, d.beta())
	if err != nil {
		return err
	}
	if previous, err = d.layer(ctx, s); err != nil {
		return err
	}
	say("one more package: only the image of the packages is new")
	if err := d.edit("      - name: tree\n", "      - name: tree\n      - name: bc\n"); err != nil {
		return err
	}
	if err := d.caisson(ctx, append([]string{"plan", "site.yaml", "--from", d.fleet.To()}, d.plain()...)...); err != nil && !strings.Contains(err.Error(), "exit status 3") {
		return err
	}
	if err := d.build(ctx); err != nil {
		return err
	}
	if err := d.push(ctx); err != nil {
		return err
	}
	if s, err = d.reboot(ctx, s, "caisson: entering the layer"); err != nil {
		return err
	}
	return look(ctx, s, []vm.Check{
		{What: "the new package", Command: "echo 6*7 | bc", Want: "42"},
		{What: "status", Command: "sudo caisson-agent status", Want: "~health      ok"},
	})
}

func (d *demo) reboot(ctx context.Context, s *machine.Session, marker string) (*machine.Session, error) {
	from := d.beta().Console.Len()
	fmt.Println("beta$ sudo systemctl reboot")
	s.Run(ctx, "sudo systemctl reboot") // the connection may end before the answer
	if err := follow(ctx, d.beta(), from, marker); err != nil {
		return nil, err
	}
	return d.login(ctx, d.beta())
}

func (d *demo) pin(ctx context.Context) error {
	s, err := d.login(ctx, d.beta())
	if err != nil {
		return err
	}
	say("beta reboots while its tag shows the overlay of alpha: it refuses, says why, and tries again")
	if err := d.fleet.Impersonate(ctx, "beta", "alpha"); err != nil {
		return err
	}
	from := d.beta().Console.Len()
	fmt.Println("beta$ sudo systemctl reboot")
	_, _ = s.Run(ctx, "sudo systemctl reboot") // the connection may end before the answer
	if err := follow(ctx, d.beta(), from, "it tries again in"); err != nil {
		return err
	}
	say("roll back: a newer generation that names the previous layer")
	if err := d.caisson(ctx, append([]string{"pin", d.fleet.To(), "--node", "beta", "--layer", previous, "--reason", "going back", "--key", "keys/operator.key"}, d.plain()...)...); err != nil {
		return err
	}
	if err := follow(ctx, d.beta(), from, "caisson: entering the layer"); err != nil {
		return err
	}
	if s, err = d.login(ctx, d.beta()); err != nil {
		return err
	}
	err = look(ctx, s, []vm.Check{
		{What: "the previous layer runs", Command: "sudo caisson-agent status | grep ^layer", Want: "~" + previous},
		{What: "the new package is gone", Command: "command -v bc || echo none", Want: "none"},
		{What: "status", Command: "sudo caisson-agent status", Want: "~health      ok"},
	})
	d.beta().PowerCut()
	return err
}

// alpha is the node with a state disk.
func (d *demo) alpha() machine.Options {
	return machine.Options{Name: "alpha", MAC: "52:54:00:00:00:0a", Disk: filepath.Join(d.dir, "alpha.raw")}
}

// besides starts alpha: it comes up while beta is looked at, and is looked at later.
func (d *demo) besides(ctx context.Context) error {
	say("beside it alpha comes up, which has a state disk")
	fmt.Println("$ sgdisk -n 1:2048:0 -c 1:caisson-state alpha.raw && mkfs.ext4 …")
	if err := machine.MakeStateDisk(ctx, d.alpha().Disk, 1024, ""); err != nil {
		return err
	}
	_, err := d.start(ctx, d.alpha())
	return err
}

func (d *demo) lastGood(ctx context.Context) error {
	m := d.machines[1]
	if err := follow(ctx, m, 0, "caisson: entering the layer"); err != nil {
		return err
	}
	s, err := d.login(ctx, m)
	if err != nil {
		return err
	}
	if err := look(ctx, s, []vm.Check{{What: "status", Command: "sudo caisson-agent status", Want: "~health      ok"}}); err != nil {
		return err
	}
	say("the power goes, and while it is away somebody alters alpha's overlay")
	m.PowerCut()
	if err := d.fleet.Tamper(ctx, "alpha", `"value":"10"`, `"value":"99"`); err != nil {
		return err
	}
	if m, err = d.start(ctx, d.alpha()); err != nil {
		return err
	}
	if err := follow(ctx, m, 0, "caisson: entering the layer"); err != nil {
		return err
	}
	if s, err = d.login(ctx, m); err != nil {
		return err
	}
	return look(ctx, s, []vm.Check{
		{What: "it says what it refused", Command: "sudo caisson-agent status | grep ^sync", Want: "~refused:subject"},
		{What: "and runs its last good overlay", Command: "sudo caisson-agent status | grep ^generation", Want: "~(cached)"},
		{What: "with the value of that", Command: "cat /proc/sys/vm/swappiness", Want: "10"},
	})
}
