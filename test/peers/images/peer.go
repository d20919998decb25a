// SPDX-License-Identifier: Apache-2.0

package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/test/peers/debian"
)

// peer is one program that makes images. Its commands run in a root of Debian, where its files
// are below /peer. All compress by zstd at level 3.
type peer struct {
	name    string
	version string
	ready   string // not measured
	write   func(s system, dir string) error
	build   string // the command that is measured
	forget  string // removes what a build left
	result  string // files whose content says whether two builds are equal
	files   string // files of the image, for its size
}

const buildah = "buildah --root /peer/store --runroot /run/buildah --storage-driver overlay "

// limits are below those of any host: buildah asks for more than a process may have.
const limits = "--ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --isolation chroot --network host --timestamp 1767225600 "

var peers = []peer{
	{name: "caisson", version: "/peer/caisson version", write: writeCaisson,
		ready:  "cd /peer && mkdir init && ./caisson init init && mv init/keys .",
		build:  "cd /peer && ./caisson build site.yaml --to oci:out --key keys/release.key --attest-key= --cache cache --fast >built",
		forget: "rm -rf /peer/cache /peer/out /peer/caisson.memory", result: "built", files: "out/blobs/sha256/*"},
	{name: "mkosi", version: "mkosi --version", write: writeMkosi,
		build:  "cd /peer && mkosi --force build",
		forget: "rm -rf /peer/mkosi.cache && mkdir /peer/mkosi.cache", result: "image.raw", files: "image.raw"},
	{name: "buildah", version: "buildah --version", write: writeBuildah,
		ready: "mkdir /peer/base && cd /peer/base && mmdebstrap --quiet --variant=apt trixie debian.tar && printf 'FROM scratch\\nADD " +
			"debian.tar /\\n' >Dockerfile && " +
			buildah + "build " + limits + "--layers=false -t debian .",
		build: "cd /peer && " + buildah + "build " + limits + "--layers -t node . && rm -rf out && " +
			buildah + "push --compression-format zstd --compression-level 3 node oci:out:latest",
		forget: buildah + "rmi --force localhost/node || true; " + buildah + "rmi --prune --force; rm -rf /peer/out",
		result: "out/index.json", files: "out/blobs/sha256/*"},
	{name: "mmdebstrap", version: "mmdebstrap --version", write: writeMmdebstrap,
		build: "cd /peer && ./build", forget: "rm -f /peer/image", result: "image", files: "image"},
}

// Peers returns the names of all.
func Peers() (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// all returns all packages that are asked for.
func (s system) all() []string { return slices.Concat(s.base, s.packages) }

func user(n int) string { return fmt.Sprintf("person%d", n) }

func sshKey(n int) string {
	return "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICPETahEyllxaSmseT2t1YryzVztAMi7gzpQv6maqmbh " + user(n) + "@example.org"
}

// put writes a file, an executable one where it is a script.
func put(dir, name, text string) error {
	name = filepath.Join(dir, name)
	mode := os.FileMode(0o644)
	if strings.HasPrefix(text, "#!") {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode))
}

// keys writes a file of keys for each user, and no other.
func (s system) keys(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for n := range s.users {
		if err := put(dir, user(n), sshKey(n)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// addUsers are commands of a shell that make the users, whose keys are in a directory.
func (s system) addUsers(keys string) string {
	return fmt.Sprintf(`for n in $(seq 0 %d); do useradd --create-home --shell /bin/bash person$n && `+
		`install -D -m 600 %s/person$n /home/person$n/.ssh/authorized_keys && chown -R person$n: /home/person$n/.ssh || exit 1; done`,
		s.users-1, keys)
}

func writeCaisson(s system, dir string) error {
	type m = map[string]any
	var packages, users []m
	for _, p := range s.packages {
		packages = append(packages, m{"name": p})
	}
	for n := range s.users {
		users = append(users, m{"user_name": user(n), "user_sshkeys": []string{sshKey(n)}})
	}
	text, err := json.Marshal(m{"apiVersion": "caisson.dev/v1alpha1", "kind": "Site", "metadata": m{"name": "metal-a"}, "registry": "oci:out",
		"layer": m{"base": m{"debian": m{"suite": "trixie"}}, "kernel": m{"package": "linux-image-cloud-amd64"}},
		"nodes": []m{{"name": "host", "match": m{"macs": []string{"52:54:00:00:00:0a"}}}},
		"conf":  m{"apt": m{"packages": packages}, "uamlite": m{"users": users}}})
	if err != nil {
		return err
	}
	return put(dir, "site.yaml", string(text))
}

func writeMkosi(s system, dir string) error {
	mirror, err := debian.Mirror()
	if err != nil {
		return err
	}
	sources := ""
	for _, of := range []string{"debian trixie trixie-updates", "debian-security trixie-security"} {
		archive, suites, _ := strings.Cut(of, " ")
		sources += "Types: deb\nURIs: " + strings.TrimSuffix(mirror, "debian") + archive + "\nSuites: " + suites +
			"\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n"
	}
	return errors.Join(s.keys(filepath.Join(dir, "mkosi.extra/keys")),
		put(dir, "mkosi.sandbox/etc/apt/sources.list.d/mkosi.sources", sources), // without sources and debug symbols
		put(dir, "mkosi.repart/10-root.conf", "[Partition]\nType=root\nFormat=squashfs\n"+
			"CopyFiles=/\nMinimize=best\nCompression=zstd\nCompressionLevel=3\n"),
		put(dir, "mkosi.postinst.chroot", "#!/bin/sh\n"+s.addUsers("/keys")+"\n"),
		put(dir, "mkosi.conf", `[Distribution]
Distribution=debian
Release=trixie
[Output]
Format=disk
Seed=0e9a6fe0-68f6-408c-bbeb-136054d20445
SplitArtifacts=
[Content]
Bootable=no
WithDocs=no
WithRecommends=no
SourceDateEpoch=1767225600
Packages=`+strings.Join(s.all(), ",")+`
[Build]
Incremental=yes
CacheDirectory=mkosi.cache
`))
}

func writeBuildah(s system, dir string) error {
	return errors.Join(s.keys(filepath.Join(dir, "keys")), put(dir, "Dockerfile",
		"FROM localhost/debian\nENV DEBIAN_FRONTEND=noninteractive INITRD=No\n"+
			"RUN apt-get -qq update && apt-get -qq -y --no-install-recommends install "+strings.Join(s.all(), " ")+
			" && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale\n"+
			"COPY keys /keys\nRUN "+s.addUsers("/keys")+"\n"))
}

func writeMmdebstrap(s system, dir string) error {
	excluded := ""
	for _, of := range []string{"doc", "man", "info", "locale"} {
		excluded += " --dpkgopt='path-exclude=/usr/share/" + of + "/*'"
	}
	return errors.Join(s.keys(filepath.Join(dir, "keys")), put(dir, "build", `#!/bin/bash
set -o pipefail
export INITRD=No
mmdebstrap --quiet --variant=apt --format=tar --include=`+strings.Join(s.all(), ",")+excluded+` --aptopt='APT::Install-Recommends "false"' \
  --customize-hook='copy-in /peer/keys /' \
  --customize-hook='chroot "$1" /bin/sh -c '\''`+strings.ReplaceAll(s.addUsers("/keys"), "'", `'\''`)+`'\''' trixie - |
mksquashfs - image -tar -noappend -comp zstd -Xcompression-level 3 -b 128K -no-fragments -no-progress -quiet
`))
}
