// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/cli"
)

// machines are the architectures as programs name them, by Debian's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// agentName is how the program is called where it is installed.
const agentName = "caisson-agent"

// FindAgent returns the agent for an architecture, which need not be that of the machine that
// builds: the file that is named, of several the one which is for it; where none is named,
// caisson-agent or caisson-agent-ARCH in a directory or on PATH.
func FindAgent(named []string, dir, arch string) (string, error) {
	if len(named) == 1 {
		return named[0], nil // whether it fits [CheckAgent] says
	}
	for _, file := range named {
		if _, found, err := readAgent(file); err != nil {
			return "", fmt.Errorf("agent binary %s: %w", file, err)
		} else if found == machines[arch] {
			return file, nil
		}
	}
	if len(named) > 0 {
		return "", cli.Usage("--agent is given once for each architecture", "no agent that --agent names is for %s", arch)
	}
	for _, file := range []string{agentName, agentName + "-" + arch} {
		beside := filepath.Join(dir, file)
		if _, found, err := readAgent(beside); err == nil && found == machines[arch] {
			return beside, nil
		}
		if on, err := exec.LookPath(file); err == nil {
			if _, found, err := readAgent(on); err == nil && found == machines[arch] {
				return on, nil
			}
		}
	}
	return "", cli.Usage("name it with --agent: a release has "+agentName+"_VERSION_linux_"+arch,
		"no %s for %s beside this program or on PATH, nor %s-%s", agentName, arch, agentName, arch)
}

// CheckAgent refuses a binary that cannot be the first process of a loader, where
// there is no dynamic linker.
func CheckAgent(file, arch string) error {
	static, found, err := readAgent(file)
	if err != nil {
		return err
	}
	if !static {
		return errors.New("not static: build it with CGO_ENABLED=0")
	}
	if found != machines[arch] {
		return fmt.Errorf("it is for %v, the layer for %s", found, arch)
	}
	return nil
}

// readAgent reads of a program for which machines it is, and whether it needs no dynamic linker.
func readAgent(file string) (static bool, machine elf.Machine, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return false, 0, err
	}
	if !info.Mode().IsRegular() {
		return false, 0, errors.New("not a file")
	}
	f, err := elf.Open(file)
	if err != nil {
		return false, 0, fmt.Errorf("not an ELF executable: %w", err)
	}
	defer f.Close()                                    // only read
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN { // the latter is static-pie, too
		return false, 0, fmt.Errorf("not an executable but %v", f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false, f.Machine, nil
		}
	}
	return true, f.Machine, nil
}
