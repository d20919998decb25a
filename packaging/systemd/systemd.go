// SPDX-License-Identifier: Apache-2.0

// Package systemd holds the units that every layer carries, see
// systemd.unit(5). The builder writes them into the agent's image.
package systemd

import "embed"

// Units are the unit files.
//
//go:embed *.service *.timer
var Units embed.FS
