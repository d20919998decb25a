// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec/rules"
)

// always are loaded on every node before anything is looked for.
var always = []string{"af_packet", "loop", "overlay", "squashfs", "ext4", "vfat", "nls_ascii", "nls_cp437"}

// carried are there on every node, and loaded by the loader where the machine has what they
// are for, or where the site has bonds and VLANs.
var carried = []string{"efivarfs", "efi_pstore", "bonding", "8021q"}

// policies name directories below the kernel's own, and what is left out of them.
var policies = map[string]struct{ in, out []string }{
	"network": {
		in: []string{"drivers/net/", "net/packet/", "net/8021q/", "drivers/virtio/", "drivers/hv/", "drivers/xen/", "drivers/infiniband/core/"},
		out: []string{"drivers/net/wireless/", "drivers/net/can/", "drivers/net/wwan/", "drivers/net/hamradio/", "drivers/net/ieee802154/",
			"drivers/net/wan/", "drivers/net/ppp/", "drivers/net/slip/", "drivers/net/arcnet/", "drivers/net/plip/",
			"drivers/net/fddi/", "drivers/net/wireguard/"},
	},
	"storage": {
		// dm-verity checks what is read from the state disk, at the speed of the processor's own sha256.
		in: []string{"arch/x86/crypto/sha256-", "arch/arm64/crypto/sha2", "drivers/ata/", "drivers/block/",
			"drivers/message/fusion/", "drivers/mmc/", "drivers/nvme/", "drivers/scsi/", "drivers/virtio/", "drivers/hv/",
			"drivers/usb/host/", "drivers/usb/storage/", "drivers/md/dm-verity", "drivers/ufs/", "fs/ext4/", "fs/fat/", "fs/nls/"},
		out: []string{"drivers/scsi/device_handler/", "drivers/block/drbd/", "drivers/block/aoe/"},
	},
	// A machine whose boot hangs is started over by its hardware; Intel's chipsets show
	// theirs through another driver.
	"watchdog": {
		in:  []string{"drivers/watchdog/", "drivers/mfd/lpc_ich", "drivers/i2c/busses/i2c-i801"},
		out: []string{"drivers/watchdog/softdog", "drivers/watchdog/pretimeout_"},
	},
	// Built into Debian's kernels of amd64, a module in those of arm64.
	"tpm": {in: []string{"drivers/char/tpm/tpm_tis", "drivers/char/tpm/tpm_crb"}},
}

// modules holds the tables that depmod(8) wrote for one kernel.
type modules struct {
	root    *root.Root
	dir     string
	release string
	deps    map[string][]string // path → paths, both below dir
	soft    map[string][]string // module name → names, and aliases as they are written
	byName  map[string]string
	byAlias map[string][]string // → module names, where an alias is not a pattern
	order   []string
	alias   []string // lines
	softdep []string // lines
	builtin []byte
	instead map[string]string // module name → path of the kernel's own, of all of them
}

func readModules(r *root.Root, release string) (*modules, error) {
	m := &modules{root: r, dir: "/usr/lib/modules/" + release, release: release, deps: map[string][]string{},
		soft: map[string][]string{}, byName: map[string]string{}, byAlias: map[string][]string{}, instead: map[string]string{}}
	dep, err := r.ReadFile(m.dir + "/modules.dep")
	if err != nil {
		return nil, fmt.Errorf("modules of kernel %s: %w", release, err)
	}
	for line := range strings.Lines(string(dep)) {
		file, deps, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok {
			m.deps[file] = strings.Fields(deps)
			m.byName[moduleName(file)] = file
			m.order = append(m.order, file)
		}
	}
	sort.Strings(m.order)
	read := func(name string) ([]string, error) {
		data, err := r.ReadFile(m.dir + "/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		var lines []string
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
		return lines, err
	}
	if m.alias, err = read("modules.alias"); err != nil {
		return nil, err
	}
	for _, line := range m.alias {
		if f := strings.Fields(line); len(f) == 3 {
			m.byAlias[f[1]] = append(m.byAlias[f[1]], rules.ModuleName(f[2]))
		}
	}
	if m.softdep, err = read("modules.softdep"); err != nil {
		return nil, err
	}
	for _, line := range m.softdep {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "softdep" {
			for _, name := range f[2:] {
				if !strings.HasSuffix(name, ":") {
					m.soft[rules.ModuleName(f[1])] = append(m.soft[rules.ModuleName(f[1])], name)
				}
			}
		}
	}
	own, err := read("modules.order")
	if err != nil {
		return nil, err
	}
	for _, file := range own {
		m.instead[moduleName(file)] = file
	}
	m.builtin, err = r.ReadFile(m.dir + "/modules.builtin")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return m, err
}

// moduleName is the name the kernel knows a file by.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return rules.ModuleName(name)
}

// Select returns the files of the loader's modules, sorted: those of the named
// policies ("network", "storage"; both when none is named) or names, those that
// are always needed, watchdogs, bonds and VLANs among them, and what they all depend on.
func (m *modules) Select(policy []string) ([]string, error) {
	if len(policy) == 0 {
		policy = []string{"network", "storage"}
	}
	chosen := map[string]bool{}
	var add func(file string)
	add = func(file string) {
		if chosen[file] {
			return
		}
		chosen[file] = true
		for _, dep := range m.deps[file] {
			add(dep)
		}
		for _, wanted := range m.soft[moduleName(file)] {
			for _, name := range append([]string{rules.ModuleName(wanted)}, m.byAlias[wanted]...) { // ext4 wants crypto-crc32c, which several are
				if f, ok := m.byName[name]; ok {
					add(f)
				}
			}
		}
	}
	for _, p := range append(slices.Clone(policy), "watchdog", "tpm") {
		rule, isPolicy := policies[p]
		if !isPolicy {
			file, ok := m.byName[rules.ModuleName(p)]
			if !ok {
				if bytes.Contains(m.builtin, []byte("/"+p+".ko\n")) {
					continue
				}
				return nil, fmt.Errorf("loader module %q: kernel %s has no such module, and it is not a policy (network, storage)", p, m.release)
			}
			add(file)
			continue
		}
		for _, file := range m.order {
			if below := m.below(file); hasAny(below, rule.in) && !hasAny(below, rule.out) {
				add(file)
			}
		}
	}
	for _, name := range slices.Concat(always, carried) {
		if file, ok := m.byName[name]; ok {
			add(file)
		}
	}
	return slices.Sorted(maps.Keys(chosen)), nil
}

// below is where a module is of the kernel's own tree, or where the one is that it takes the place of:
// depmod names the one of updates/ alone.
func (m *modules) below(file string) string {
	own := cmp.Or(m.instead[moduleName(file)], file)
	return strings.TrimPrefix(strings.TrimPrefix(own, "kernel/"), "updates/")
}

func hasAny(file string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(file, p) })
}

// pack adds the modules, unpacked, and the tables that the agent looks them up in.
func (m *modules) pack(ctx context.Context, a *cpio.Archive, files, named []string, report *Report) error {
	shipped := map[string]bool{}
	wants := map[string][]string{} // module → firmware files
	var dep, load strings.Builder
	base := paths.ModulesDir + "/" + m.release + "/"
	for _, file := range files {
		data, err := m.root.ReadFile(m.dir + "/" + file)
		if err != nil {
			return err
		}
		if data, err = Unpack(ctx, file, data); err != nil {
			return fmt.Errorf("module %s: %w", file, err)
		}
		a.File(base+Plain(file), data, 0o644)
		report.Modules++
		report.ModuleBytes += int64(len(data))
		shipped[moduleName(file)] = true
		wants[moduleName(file)] = wantsFirmware(data)
		dep.WriteString(Plain(file) + ":")
		for _, d := range m.deps[file] {
			dep.WriteString(" " + Plain(d))
		}
		dep.WriteString("\n")
	}
	a.File(base+"modules.dep", []byte(dep.String()), 0o644)
	a.File(base+"modules.alias", keep(m.alias, func(f []string) bool { return len(f) == 3 && shipped[rules.ModuleName(f[2])] }), 0o644)
	a.File(base+"modules.softdep", keep(m.softdep, func(f []string) bool { return len(f) > 2 && shipped[rules.ModuleName(f[1])] }), 0o644)
	a.File(base+"modules.builtin", m.builtin, 0o644)
	for _, name := range slices.Concat(always, named) { // no device asks for these
		if shipped[rules.ModuleName(name)] {
			load.WriteString(rules.ModuleName(name) + "\n")
		}
	}
	a.File(paths.ModulesLoad, []byte(load.String()), 0o644)
	return m.packFirmware(ctx, a, wants, report)
}

func keep(lines []string, want func([]string) bool) []byte {
	var b strings.Builder
	for _, line := range lines {
		if want(strings.Fields(line)) {
			b.WriteString(line + "\n")
		}
	}
	return []byte(b.String())
}

// Plain is the name of a module file when it is unpacked.
func Plain(file string) string {
	stem, _, _ := strings.Cut(file, ".ko")
	return stem + ".ko"
}

// Unpack undoes the compression that the distribution gave a module: the agent
// has no decompressor and the kernel may have none.
func Unpack(ctx context.Context, file string, data []byte) ([]byte, error) {
	switch path.Ext(file) {
	case ".xz":
		cmd := exec.CommandContext(ctx, "xz", "--decompress", "--stdout")
		cmd.Stdin = bytes.NewReader(data)
		return cmd.Output()
	case ".zst":
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return io.ReadAll(z)
	}
	return data, nil
}
