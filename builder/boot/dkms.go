// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cms"
)

// DKMS is the package that makes modules where it is installed. No layer has it.
const DKMS = "dkms"

// StandIn is the [DKMS] in a record of dpkg, for packages that depend on it.
const StandIn = "\nPackage: " + DKMS + "\nStatus: install ok installed\nPriority: optional\nSection: kernel\n" +
	"Maintainer: caisson\nArchitecture: all\nMulti-Arch: foreign\nVersion: 9999\nDescription: stand-in\n\n"

// hook is the program that scripts of packages with sources call, and fail without.
const hook = "/usr/lib/dkms/common.postinst"

const status, list = "/var/lib/dpkg/status", "/var/lib/dpkg/info/" + DKMS + ".list"

// PretendDKMS makes a tree one that has the [DKMS], until [ForgetDKMS].
func PretendDKMS(r *root.Root) error {
	had, err := r.ReadFile(status)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteFile(status, slices.Concat(had, []byte(StandIn)), 0o644), r.WriteFile(hook, []byte("#!/bin/sh\n"), 0o755),
		r.WriteFile(list, []byte("/.\n/usr\n/usr/lib\n"+path.Dir(hook)+"\n"+hook+"\n"), 0o644))
}

// ForgetDKMS undoes [PretendDKMS].
func ForgetDKMS(ctx context.Context, r *root.Root) error {
	return root.Said(r.Run(ctx, root.Command{Args: []string{"dpkg", "--force-depends", "--purge", DKMS}}))
}

// kernelName is a package of one kernel. What tells signed ones apart is not of the release.
var kernelName = regexp.MustCompile(`^(.+)-(?:image|kernel)-(\d.*?)(?:-unsigned|-signed)?$`)

// Headers returns the package with the headers of the newest kernel among packages, "" where that
// is among them.
func Headers(packages []string) (string, error) {
	release, headers := "", ""
	for _, name := range packages {
		if m := kernelName.FindStringSubmatch(name); m != nil && Newer(m[2], release) {
			release, headers = m[2], m[1]+"-headers-"+m[2]
		}
	}
	if release == "" {
		return "", errors.New("no package of the layer has a kernel's release in its name: name that of the headers")
	}
	if slices.Contains(packages, headers) {
		return "", nil
	}
	return headers, nil
}

//go:embed make.sh
var script string

// failed begins the script's line that has the reasons.
const failed = "caisson: not made\n"

// MakeModules makes the modules of the sources for dkms(8) in r for its kernel, and returns their files.
// Of what is in scratch nothing stays, see docs/adr/0028-modules-out-of-the-tree.md. scratch
// is a tree above r with the tools. sign signs each, once all are made.
func MakeModules(ctx context.Context, r, scratch *root.Root, sign func(module []byte) ([]byte, error)) ([]string, error) {
	release, _, err := Kernel(r)
	if err != nil {
		return nil, err
	}
	if found, err := r.ReadDir("/usr/src"); err != nil || !slices.ContainsFunc(found,
		func(name string) bool { _, err := r.Lstat("/usr/src/" + name + "/dkms.conf"); return err == nil }) {
		return nil, nil // they were needed by something else
	}
	if _, err := scratch.Lstat("/usr/lib/modules/" + release + "/build"); err != nil {
		return nil, fmt.Errorf("make modules for kernel %s: its headers are not there (package linux-headers-%[1]s)", release)
	}
	// A name that is not there: dkms makes no key.
	if err := scratch.WriteFile("/etc/dkms/framework.conf.d/caisson.conf", []byte("sign_file=/nonexistent\n"), 0o644); err != nil {
		return nil, err
	}
	err = scratch.Run(ctx, root.Command{Args: []string{"/bin/sh", "-c", script, "make modules", release}})
	if err != nil {
		if exit, ok := errors.AsType[*root.ExitError](err); ok {
			if _, why, is := strings.Cut(exit.Output, failed); is {
				return nil, fmt.Errorf("not made for kernel %s: %s", release, why)
			}
		}
		return nil, fmt.Errorf("make modules for kernel %s: %w", release, root.Said(err))
	}
	made, err := keepModules(ctx, r, scratch, "/usr/lib/modules/"+release+"/updates", sign)
	if err == nil {
		err = root.Said(r.Run(ctx, root.Command{Args: []string{"depmod", release}}))
	}
	return made, err
}

// keepModules writes into r the modules that were made in scratch below dir.
func keepModules(ctx context.Context, r, scratch *root.Root, dir string, sign func(module []byte) ([]byte, error),
) (made []string, err error) {
	names, err := scratch.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		name = path.Join(dir, name)
		info, err := scratch.Lstat(name)
		if err != nil {
			return nil, err
		}
		at, err := scratch.Path(name)
		if err != nil {
			return nil, err
		}
		switch {
		case info.IsDir():
			below, err := keepModules(ctx, r, scratch, name, sign)
			if err != nil {
				return nil, err
			}
			made = append(made, below...)
		case info.Mode().IsRegular() && strings.Contains(path.Base(name), ".ko") && strings.HasPrefix(at, scratch.Upper+"/"):
			data, err := scratch.ReadFile(name)
			if err != nil {
				return nil, err
			}
			if data, err = Unpack(ctx, name, data); err == nil {
				data, err = sign(data)
			}
			if err != nil {
				return nil, fmt.Errorf("module %s: %w", name, err)
			}
			if err := r.WriteFile(Plain(name), data, 0o644); err != nil {
				return nil, err
			}
			made = append(made, Plain(name))
		}
	}
	return made, nil
}

// mark ends a signed module, see Documentation/admin-guide/module-signing.rst of the kernel.
const mark = "~Module signature appended~\n"

// inPKCS7 is the kind of a signature that names its key and algorithms itself.
const inPKCS7 = 2

// SignModule appends a signature to a module.
func SignModule(module []byte, key crypto.Signer, certificate *x509.Certificate) ([]byte, error) {
	signature, err := cms.Detached(key, certificate, module)
	if err != nil {
		return nil, err
	}
	end := binary.BigEndian.AppendUint32([]byte{0, 0, inPKCS7, 0, 0, 0, 0, 0}, uint32(len(signature))) // struct module_signature
	return slices.Concat(module, signature, end, []byte(mark)), nil
}

// own is the directory of the modules that a kernel's package brings.
const own = "kernel"

// Unsigned lists the modules of a kernel's release that nobody signed, below the release's directory.
// The kernel's own are signed together, so that the first stands for all of them: "kernel".
func Unsigned(ctx context.Context, r *root.Root, release string) (names []string, err error) {
	w := walk{ctx: ctx, r: r, dir: "/usr/lib/modules/" + release}
	if err := w.at(""); err != nil {
		return nil, fmt.Errorf("modules of kernel %s: %w", release, err)
	}
	return w.unsigned, nil
}

type walk struct {
	ctx      context.Context
	r        *root.Root
	dir      string
	looked   bool // at one of the kernel's own
	unsigned []string
}

// at looks at a module, or at all that a directory has.
func (w *walk) at(name string) error {
	ours := strings.HasPrefix(name, own+"/")
	if ours && w.looked {
		return nil
	}
	info, err := w.r.Lstat(path.Join(w.dir, name))
	switch {
	case err != nil:
		return err
	case info.IsDir():
		below, err := w.r.ReadDir(path.Join(w.dir, name))
		for _, b := range below {
			if err == nil {
				err = w.at(path.Join(name, b))
			}
		}
		return err
	case !info.Mode().IsRegular() || !strings.Contains(path.Base(name), ".ko"):
		return nil
	}
	data, err := w.r.ReadFile(path.Join(w.dir, name))
	if err == nil {
		data, err = Unpack(w.ctx, name, data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if w.looked = w.looked || ours; bytes.HasSuffix(data, []byte(mark)) {
		return nil
	}
	if ours {
		name = own
	}
	w.unsigned = append(w.unsigned, name)
	return nil
}
