"""The family of LOCAL (Latent Orthonormal Contrastive Learning for Paired Images), for any modality.

Shared here: settings, objective, the joint network, latent differences, samplers, schedules, metrics, the training
loop, tables and figures. A modality brings its data, views and encoder: `paired_images` and `paired_texts`.
"""
