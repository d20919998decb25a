// SPDX-License-Identifier: Apache-2.0

// Package netboot makes and serves the files that machines boot over the network: the loader's
// kernel and initrd, site.cpio with the trust anchor, and the iPXE script that loads the three; see
// [Serve].
//
// It takes a loader out of a released layer and adds what the site's nodes trust.
// It is not the registry that nodes ask afterwards, and it signs nothing: the
// loader is as safe as the wire or the firmware that brings it. Only cmd/caisson
// and package sandbox import it.
package netboot
