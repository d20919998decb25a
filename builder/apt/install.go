// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"

	"github.com/caisson-os/caisson/builder/root"
)

// ForbidServices keeps services of r from starting, see invoke-rc.d(8). The file
// must not stay in a layer.
func ForbidServices(r *root.Root) error {
	return r.WriteFile("/usr/sbin/policy-rc.d", []byte("#!/bin/sh\nexit 101\n"), 0o755)
}

// offer makes the repository at [root.Bind] all that the apt of a root knows. Each
// run has its own /tmp, so the lists are read again, from a local file. debconf is
// not run before the packages are unpacked: that is for people who answer its
// questions, and here each package's own script finds the answers, see
// dpkg-preconfigure(8).
const offer = `set -e
mkdir -p /tmp/lists/partial /tmp/cache/archives/partial
cp -r /etc/apt/apt.conf.d /tmp/parts
rm -f /tmp/parts/70debconf
echo 'Dir::Etc::parts "/tmp/parts";' >/tmp/apt.conf
export APT_CONFIG=/tmp/apt.conf
echo "deb [trusted=yes] file:` + root.Bind + ` ./" >/tmp/sources.list
apt-get -qq -o Dir::Etc::sourcelist=/tmp/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=/tmp/lists -o Dir::Cache=/tmp/cache -o APT::Sandbox::User=root -o Acquire::Languages=none update
exec "$@"`

// Get runs the apt-get(8) of r, without questions, on the flat repository repo.
// What it refuses is an [Error].
func Get(ctx context.Context, r *root.Root, repo string, line func(string), args ...string) error {
	all := append([]string{"/bin/sh", "-c", offer, "apt",
		"apt-get", "-y", "-o", "Dir::Etc::sourcelist=/tmp/sources.list", "-o", "Dir::Etc::sourceparts=-",
		"-o", "Dir::State::lists=/tmp/lists", "-o", "Dir::Cache=/tmp/cache", "-o", "APT::Install-Recommends=false", "-o", "APT::Sandbox::User=root",
		"-o", "Acquire::Languages=none", "-o", "Dpkg::Use-Pty=0",
		"-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold", "-o", "DPkg::Options::=--force-unsafe-io"}, args...)
	return ReasonsOf(r.RunWith(ctx, repo, root.Command{Args: all, Line: line}))
}
