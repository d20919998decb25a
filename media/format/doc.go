// SPDX-License-Identifier: Apache-2.0

// Package format writes what firmware reads from media: FAT file systems, ISO 9660 images with
// their boot records, and unified kernel images. It reads and changes none, and writes no partition
// table. Only media imports it.
package format
